"""The custom op that holds recomputation back until a gradient is there."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tensoropt.runtime.ops import library_path
from tensoropt.runtime.session.session import rank_session

TYPES = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "int8", "uint8"]
FLOAT = TensorProto.FLOAT


def session(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str], path: Path
) -> ort.InferenceSession:
    graph = helper.make_graph(
        nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs]
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library_path()))
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def barrier(x: str, after: str, y: str) -> onnx.NodeProto:
    return helper.make_node("Barrier", [x, after], [y], name=y, domain="tensoropt")


def info(name: str, type_: int = FLOAT, shape: tuple[int, ...] = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
@pytest.mark.parametrize("dtype", TYPES)
def test_it_returns_its_first_operand(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    element = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    number = helper.np_dtype_to_tensor_dtype(element)
    path = tmp_path / "m.onnx"
    inputs = [info("x", number, shape), info("after", TensorProto.INT64, (5,))]
    session([barrier("x", "after", "y")], inputs, ["y"], path)
    made = rank_session(path, threads=1)
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(element)
    made.feed("x", x)
    made.feed("after", np.zeros(5, np.int64))
    made.run()
    y = made.fetch()["y"]
    assert (y.dtype, y.shape) == (element, shape)
    np.testing.assert_array_equal(y, x)


def test_equal_ops_behind_it_are_not_merged_with_those_before(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Sqrt", ["a"], ["after"]),
        barrier("x", "after", "b"),
        helper.make_node("Exp", ["b"], ["c"]),
        helper.make_node("Exp", ["x"], ["d"]),
        helper.make_node("Mul", ["c", "d"], ["e"]),
        helper.make_node("Mul", ["e", "after"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    made = session(nodes, [info("x")], ["y"], path)
    kept = [n.op_type for n in onnx.load(path.with_suffix(".optimized.onnx")).graph.node]
    assert (kept.count("Exp"), kept.count("Barrier")) == (2, 1)
    x = np.random.default_rng(0).random((2, 3)).astype(np.float32)
    np.testing.assert_allclose(made.run(["y"], {"x": x})[0], np.exp(x) ** 2.5, 1e-6)


def test_a_later_write_in_place_does_not_reach_its_operand(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        barrier("a", "x", "b"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Add", ["d", "a"], ["y"]),
    ]
    made = session(nodes, [info("x")], ["y"], tmp_path / "m.onnx")
    x = np.random.default_rng(0).random((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(made.run(["y"], {"x": x})[0], np.zeros((2, 3)))


def test_an_element_type_that_none_of_ours_is(tmp_path: Path) -> None:
    made = session(
        [barrier("x", "x", "y")], [info("x", TensorProto.STRING)], ["y"], tmp_path / "m.onnx"
    )
    with pytest.raises(Exception, match="Barrier node 'y': unsupported element type"):
        made.run(["y"], {"x": np.array([["a"] * 3] * 2)})
