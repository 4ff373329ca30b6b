"""A small model, loaded once, and its frontier on two devices."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import tensoropt as to

ROWS, WIDTH = 8, 128


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two matrix products with a Relu between them; the batch is a symbolic dimension."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    size = WIDTH * WIDTH
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [WIDTH, WIDTH], [0.25 / WIDTH] * size)
        for name in ("w1", "w2")
    ]
    value = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", WIDTH]) for n in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "mlp", value[:1], value[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path_factory.mktemp("models") / "mlp.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def model(mlp: Path) -> to.Model:
    return to.load(mlp, dims={"batch": ROWS})


@pytest.fixture(scope="session")
def frontier(model: to.Model) -> to.Frontier:
    return model.frontier(devices=2, epsilon=0)


@pytest.fixture(scope="session")
def plan(frontier: to.Frontier, tmp_path_factory: pytest.TempPathFactory) -> to.Plan:
    return frontier.leanest.compile(tmp_path_factory.mktemp("plans") / "lean")
