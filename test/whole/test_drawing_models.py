"""Models that draw random numbers: on ranks as on one device, which gets the plan's seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main as opt
from tensoropt.runtime.cli.run import main as run

Node = Any
node = helper.make_node
HALF = {"half": np.float32(0.5), "train": np.bool_(True), "many": np.int64(3)}


def save(folder: Path, nodes: list[Node], functions: list[Any] | None = None) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 6]) for n in "xy")
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in HALF.items()]
    held.append(numpy_helper.from_array(np.eye(6, dtype=np.float32), "w"))
    graph = helper.make_graph(nodes, "main", [x], [y], held)
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10, functions=functions or [])
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def plus(name: str) -> list[Node]:
    """Add what was drawn to the product, so that the plan has something to split."""
    return [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", name], ["y"])]


def body() -> Any:
    """A loop's, which adds other numbers in each round."""
    kinds = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "on": TensorProto.BOOL}
    values = {n: helper.make_tensor_value_info(n, k, []) for n, k in kinds.items()}
    a, b = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 6]) for n in ("a", "b"))
    nodes = [
        node("RandomNormalLike", ["a"], ["r"]),
        node("Add", ["a", "r"], ["b"]),
        node("Identity", ["go"], ["on"]),
    ]
    return helper.make_graph(nodes, "body", [values["i"], values["go"], a], [values["on"], b])


FUNCTION = helper.make_function(
    "own", "Noise", ["a"], ["b"], [node("RandomNormalLike", ["a"], ["b"])],
    [helper.make_opsetid("", 20)],
)  # fmt: skip

MODELS: dict[str, list[Node]] = {
    "RandomNormal": [node("RandomNormal", [], ["r"], shape=[8, 6], name="n"), *plus("r")],
    "RandomUniformLike": [node("RandomUniformLike", ["x"], ["r"]), *plus("r")],
    "two without names": [
        node("RandomNormalLike", ["x"], ["a"]),
        node("RandomNormalLike", ["x"], ["b"]),
        node("Sub", ["a", "b"], ["r"]),
        *plus("r"),
    ],
    "Bernoulli": [node("Sigmoid", ["x"], ["p"]), node("Bernoulli", ["p"], ["r"]), *plus("r")],
    "Multinomial": [
        node("Multinomial", ["x"], ["m"], sample_size=6, dtype=TensorProto.INT32),
        node("Cast", ["m"], ["r"], to=TensorProto.FLOAT),
        *plus("r"),
    ],
    "Dropout": [node("Dropout", ["x", "half", "train"], ["r"]), *plus("r")],
    "in a Loop": [node("Loop", ["many", "", "x"], ["r"], body=body()), *plus("r")],
    "its own seed": [node("RandomNormalLike", ["x"], ["r"], seed=5.0), *plus("r")],
}


@pytest.mark.parametrize("name", MODELS)
def test_ranks_draw_what_one_device_draws(capsys, tmp_path: Path, name: str) -> None:
    model, plan = save(tmp_path, MODELS[name]), tmp_path / "plan"
    assert opt([str(model), "--mesh", "2", "--pick", "leanest", "-o", str(plan)]) == 0
    assert run([str(plan), "--check", str(model), "--runs", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "PASSED"


def test_each_call_of_a_function_draws_its_own(capsys, tmp_path: Path) -> None:
    """One node of a function, called twice, is two nodes of the plan and two seeds."""
    calls = [node("Noise", ["x"], ["a"], domain="own"), node("Noise", ["x"], ["b"], domain="own")]
    drawn = [
        node("Sub", ["a", "b"], ["d"]),
        node("RandomNormalLike", ["x"], ["c"]),
        node("Sum", ["d", "c"], ["r"]),
    ]
    model, plan = save(tmp_path, [*calls, *drawn, *plus("r")], [FUNCTION]), tmp_path / "plan"
    assert opt([str(model), "--mesh", "2", "--pick", "leanest", "-o", str(plan)]) == 0
    assert run([str(plan), "--check", str(model), "--runs", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "PASSED"


def test_seeds_that_cannot_be_told_apart(capsys, tmp_path: Path) -> None:
    """What nothing uses is not in the plan."""
    drawn = [node("RandomNormalLike", ["x"], [name]) for name in ("unused", "r")]
    model, plan = save(tmp_path, [*drawn, *plus("r")]), tmp_path / "plan"
    assert opt([str(model), "--mesh", "2", "-o", str(plan)]) == 0
    capsys.readouterr()
    assert run([str(plan), "--check", str(model)]) == 1
    assert "2 RandomNormalLike nodes cannot be matched" in capsys.readouterr().err.splitlines()[-1]
