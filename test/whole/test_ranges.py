"""Sizes that are given as ranges: one plan for all of them, costs of the middle and of the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import zoo
from onnx import TensorProto, helper, numpy_helper

import tensoropt as to
from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans

BATCHES = range(2, 9, 2)
PAST = range(1, 1001)


def _mlp(path: Path) -> Path:
    """Write two layers, with a shape that is computed and a mean over the batch between them."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((16, 32)).astype(np.float32),
        "v": random.standard_normal((32, 8)).astype(np.float32),
        "zero": np.array([0]),
        "four": np.array([4, 8]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "up"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Shape", ["r"], ["s"], "shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], "rows"),
        helper.make_node("Concat", ["n", "four"], ["t"], "target", axis=0),
        helper.make_node("Reshape", ["r", "t"], ["f"], "fold"),
        helper.make_node("ReduceMean", ["f"], ["m"], "mean", axes=[0]),
        helper.make_node("Sub", ["f", "m"], ["d"], "centred"),
        helper.make_node("Flatten", ["d"], ["e"], "flatten"),
        helper.make_node("MatMul", ["e", "v"], ["y"], "down"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _mlp(tmp_path_factory.mktemp("ranges") / "mlp.onnx")


@pytest.fixture(scope="module")
def plan(mlp: Path) -> Path:
    """The plan that splits the batch wherever it can be split."""
    folder = mlp.with_name("plan")
    flags = ["--dim", "batch=2..8:2", "--devices", "2", "--search", "data-parallel"]
    assert main([str(mlp), *flags, "-o", str(folder)]) == 0
    return folder


def _document(plan: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text())
    return document


def test_a_batch_is_split_whatever_size_it_has(mlp: Path, plan: Path) -> None:
    rows = {row["node"]: row for row in _document(plan)["strategies"]}
    for node in ("up", "relu", "fold", "centred", "down"):
        assert rows[node]["operands"][0] == rows[node]["results"][0] == ["S(0)"], rows[node]
    for batch in (2, 6, 8):
        [result] = check_plans([plan], mlp, dims={"batch": batch}, threads=1)
        assert result.passed, result


def test_all_ways_to_split_a_batch(mlp: Path) -> None:
    plans = []
    for seed in range(6):
        plans.append(mlp.with_name(f"random{seed}"))
        flags = ["--dim", "batch=4..12:4", "--mesh", "2x2" if seed % 2 else "4"]
        found = ["--search", "random", "--seed", str(seed), "-o", str(plans[-1])]
        assert main([str(mlp), *flags, *found]) == 0
    for batch in (4, 12):
        results = check_plans(plans, mlp, dims={"batch": batch}, threads=1)
        assert all(result.passed for result in results), results


def test_a_session_takes_the_sizes_of_the_plan_alone(mlp: Path, plan: Path) -> None:
    session = onnxruntime.InferenceSession(mlp)
    with to.Session(plan, threads=1) as ranks:
        for batch in BATCHES:
            x = np.random.default_rng(batch).standard_normal((batch, 16), np.float32)
            expected = session.run(None, {"x": x})[0]
            np.testing.assert_allclose(ranks.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
        for batch in (0, 3, 10):
            message = (
                "input 'x': expected dimension 'batch' from 2 to 8 in steps of 2 as the plan has "
                f"it, got: {batch}"
            )
            with pytest.raises(to.UserError, match=message):
                ranks.run({"x": np.zeros((batch, 16), np.float32)})


def test_a_range_of_odd_sizes_is_never_split(mlp: Path) -> None:
    folder = mlp.with_name("odd")
    flags = ["--dim", "batch=1..8", "--devices", "2", "--search", "data-parallel"]
    assert main([str(mlp), *flags, "-o", str(folder)]) == 0
    assert _document(folder)["inputs"][0]["layout"] == ["R"]


def test_costs_are_those_of_the_middle_and_of_the_end(tmp_path: Path) -> None:
    """On one device there is one plan, so that figures can be held against those of fixed sizes."""
    model = zoo.provide("decoder_standard", tmp_path)
    others = {"batch": 4, "sequence": 1}
    given = [{}, *({"past": past} for past in (PAST[0], PAST[499], PAST[-1], (1, 1000)))]
    free, first, middle, end, ranged = (
        to.load(model, dims={**past, **others}).frontier(1, epsilon=0).fastest for past in given
    )  # free counts 1, too, but works out its shapes when it runs
    grown = middle.time_s - first.time_s
    assert ranged.time_s - free.time_s == pytest.approx(grown, rel=0.05)
    assert ranged.memory_bytes == pytest.approx(end.memory_bytes, rel=0.01)
    assert ranged.memory_bytes > 1.5 * first.memory_bytes


def test_a_cache_that_becomes_divisible_as_it_grows(tmp_path: Path) -> None:
    """Of one token it cannot be cut, of two it can; both lie alike."""
    model = zoo.provide("decoder_standard", tmp_path)
    frontier = to.load(model, dims={"past": 1, "sequence": 1, "batch": 4}).frontier(2)
    assert len(frontier)


def test_the_emitted_program_needs_what_the_end_does(tmp_path: Path) -> None:
    model = zoo.provide("decoder_standard", tmp_path)
    found = []
    for past in ("1..1000", "1000"):
        folder = tmp_path / past
        flags = ["--dim", f"past={past}", "--dim", "batch=4", "--dim", "sequence=1"]
        assert main([str(model), *flags, "--devices", "2", "-o", str(folder)]) == 0
        found.append(_document(folder)["predicted"]["memory_bytes"])
    assert found[0] == pytest.approx(found[1], rel=0.01)


def test_the_sizes_are_in_the_plan(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tensoropt.runtime.cli.plan import main as plan_main

    assert _document(plan)["dims"] == {"batch": {"first": 2, "last": 8, "step": 2}}
    assert _document(plan)["inputs"][0]["shape"] == ["batch", 16]
    assert plan_main(["show", str(plan)]) == 0
    assert "dimension batch: from 2 to 8 in steps of 2" in capsys.readouterr().out
    assert plan_main(["validate", str(plan)]) == 0


def test_ranges_of_python(mlp: Path) -> None:
    for given in ((2, 8), range(2, 9, 2)):
        model = to.load(mlp, dims={"batch": given})
        assert model.inputs[0].shape == ("batch", 16)
    assert to.load(mlp, dims={"batch": range(4, 5)}).inputs[0].shape == (4, 16)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"batch": (8, 2)}, "--dim batch: expected the smaller size first, got: '8..2'"),
        ({"batch": (1, 2, 3)}, "dims: 'batch': expected a size, .first, last. or a range"),
        ({"batch": range(0)}, "dims: 'batch': expected a size"),
        ({"bach": (1, 2)}, "no symbolic dimension 'bach', expected one of: batch"),
    ],
)
def test_ranges_that_are_refused(mlp: Path, dims: dict[str, Any], message: str) -> None:
    with pytest.raises(to.UserError, match=message):
        to.load(mlp, dims=dims)


def test_sizes_that_the_model_does_not_take(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.load(mlp)
    node = helper.make_node("Concat", ["x", "fixed"], ["c"], "joined", axis=1)
    proto.graph.node.append(node)
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 1), np.float32), "fixed"))
    proto.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [4, 17]))
    onnx.save(proto, tmp_path / "odd.onnx")
    assert main([str(tmp_path / "odd.onnx"), "--dim", "batch=2..8:2", "--devices", "2"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "the model takes no batch=8: node 'joined' (Concat)" in line, line
