"""`--check` sees wrong weights of any rank, in every output, and says where it sees nothing."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import zoo
from handmade import edit
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main as opt
from tensoropt.runtime.cli.run import main as run
from tensoropt.runtime.inference.jobs import check_plans

Array = np.ndarray[Any, Any]
LAYERS, WIDTH = 6, 16


def zeroed(weights: Array) -> Array:
    return np.zeros_like(weights)


def perturbed(weights: Array) -> Array:
    factors = np.random.default_rng(0).uniform(0.8, 1.0, weights.shape)
    return (weights * factors).astype(weights.dtype)


def spoil(plan: Path, rank: int, change: Callable[[Array], Array]) -> None:
    """Change all weights of one rank, and pass the plan off as what was written."""
    path = plan / f"rank{rank}.onnx"
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = change(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(model, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(plan, lambda content: content["files"].update({path.name: digest}))


def save(path: Path, nodes: list[Any], outputs: list[str], weights: dict[str, Array]) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, WIDTH])
    ys = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "main", [x], ys, held)
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def faint(folder: Path) -> Path:
    """Layers whose last output is about 1e-14, as of a deep network with small random weights."""
    rng = np.random.default_rng(0)
    weights = {
        f"w{i}": (rng.standard_normal((WIDTH, WIDTH)) * 1e-3).astype(np.float32)
        for i in range(LAYERS)
    }
    nodes, last = [], "x"
    for i in range(LAYERS):
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"h{i}"]),
            helper.make_node("Relu", [f"h{i}"], [f"r{i}"]),
        ]
        last = f"r{i}"
    return save(folder / "faint.onnx", nodes, [f"h{LAYERS - 1}", "h2"], weights)


def compiled(model: Path, folder: Path, *flags: str) -> Path:
    assert opt([str(model), "--mesh", "2", "-o", str(folder), *flags]) == 0
    return folder


@pytest.mark.parametrize("pick", ["fastest", "leanest"])
@pytest.mark.parametrize("name", ["faint", "gpt2_tiny", "vit_tiny"])
def test_wrong_weights_of_any_rank_are_seen(tmp_path: Path, name: str, pick: str) -> None:
    """The fastest plans have all of the output on both ranks: both are looked at."""
    model = faint(tmp_path) if name == "faint" else zoo.transformer_path(name)
    plans = [compiled(model, tmp_path / "right", "--pick", pick)]
    for rank, change in itertools.product(range(2), (zeroed, perturbed)):
        plan = shutil.copytree(plans[0], tmp_path / f"{change.__name__}{rank}")
        spoil(plan, rank, change)
        plans.append(plan)
    right, *wrong = check_plans(plans, model, int_range=(0, 200))
    assert right.passed
    assert all(output.shows for output in right.outputs)
    for result in wrong:
        assert [output.passed for output in result.outputs] == [False] * len(result.outputs)


BLIND = {
    "constant": (["Mul", ["x", "zero"]], "is constant: shows nothing"),
    "nan": (["Div", ["x", "zero"]], "is NaN or infinite throughout: shows nothing"),
}


@pytest.mark.parametrize("kind", BLIND)
def test_an_output_that_shows_nothing_is_no_pass(capsys, tmp_path: Path, kind: str) -> None:
    (op, operands), why = BLIND[kind]
    weights = {"zero": np.zeros(WIDTH, np.float32)}
    nodes = [helper.make_node(op, operands, ["y"])]
    model = save(tmp_path / "m.onnx", nodes, ["y"], weights)
    plan = compiled(model, tmp_path / "plan")
    assert run([str(plan), "--check", str(model)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith(f"ok: {why}")
    assert lines[-1].startswith("UNDECIDED: no output shows anything, expected --inputs with which")


def test_one_output_that_tells_is_enough(capsys, tmp_path: Path) -> None:
    weights = {"zero": np.zeros(WIDTH, np.float32), "w": np.eye(WIDTH, dtype=np.float32)}
    nodes = [
        helper.make_node("Mul", ["x", "zero"], ["a"]),
        helper.make_node("MatMul", ["x", "w"], ["b"]),
    ]
    model = save(tmp_path / "m.onnx", nodes, ["a", "b"], weights)
    assert run([str(compiled(model, tmp_path / "plan")), "--check", str(model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [lines[2].split()[-2:], lines[3].split()[-1]] == [["shows", "nothing"], "ok"]
    assert lines[-1] == "PASSED"


def test_inputs_are_drawn_that_excite_the_output(capsys, tmp_path: Path) -> None:
    """The logarithm of most normal numbers less 4 is none; of ten times as much, of many it is."""
    nodes = [
        helper.make_node("Sub", ["x", "four"], ["less"]),
        helper.make_node("Relu", ["less"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    weights = {"four": np.full(1, 4.5, np.float32), "w": np.eye(WIDTH, dtype=np.float32)}
    model = save(tmp_path / "m.onnx", nodes, ["y"], weights)
    assert run([str(compiled(model, tmp_path / "plan")), "--check", str(model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "drawn inputs: floats normal of deviation 10" in lines
    assert lines[-1] == "PASSED"


def test_integers_are_drawn_for_a_small_table(capsys, tmp_path: Path) -> None:
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    table = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    held = [numpy_helper.from_array(table, "table")]
    graph = helper.make_graph(nodes, "main", [ids], [y], held)
    model, opset = tmp_path / "m.onnx", [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), model)
    assert run([str(compiled(model, tmp_path / "plan")), "--check", str(model)]) == 0
    assert "drawn inputs: integers 0..1" in capsys.readouterr().out
