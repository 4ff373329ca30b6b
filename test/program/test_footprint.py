"""What a process takes room for, beside the tensors that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import tensoropt as to
from tensoropt.compiler.cost.process import Footprint
from tensoropt.compiler.program.footprint import footprint
from tensoropt.compiler.search.frontier.search import FrontierPoint

ROWS, WIDTH = 512, 256
TABLE = ROWS * WIDTH * 4


def model(path: Path, inputs: Sequence[str], *nodes: onnx.NodeProto) -> Path:
    """A model of integers ``ids`` or floats ``x`` that makes `y`; ``w`` is a table of floats."""
    known = {
        "ids": oh.make_tensor_value_info("ids", onnx.TensorProto.INT64, [4]),
        "x": oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, WIDTH]),
    }
    graph = oh.make_graph(
        list(nodes),
        "products",
        [known[name] for name in inputs],
        [oh.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(np.ones((ROWS, WIDTH), np.float32), "w"),
            onnx.numpy_helper.from_array(np.ones((ROWS, 32), np.float32), "v"),
        ],
    )
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)]), path)
    return path


def held(point: FrontierPoint) -> Footprint:
    return footprint(point.tables, point.strategies, point.cost, point.running)


@pytest.mark.parametrize(("activation", "first"), [("Relu", "v"), ("Exp", "w")])
def test_a_product_with_an_activation_is_packed_last(
    activation: str, first: str, tmp_path: Path
) -> None:
    """ONNX Runtime makes one new node of both, behind all others: then the larger one is there
    twice beside the smaller one."""
    path = model(
        tmp_path / "m.onnx",
        ["x"],
        oh.make_node("Gemm", ["x", "w"], ["a"], transB=1),
        oh.make_node(activation, ["a"], ["b"]),
        oh.make_node("Gemm", ["b", "v"], ["y"]),
    )
    point = to.load(path).frontier(devices=1).fastest.found
    before = ROWS * 32 * 4 if first == "v" else 0
    assert held(point).loading_bytes == before + 2 * TABLE


def test_a_table_whose_part_alone_is_multiplied_stays_in_its_file(tmp_path: Path) -> None:
    """The part is cut when the session is made, and dropped once it is packed."""
    path = model(
        tmp_path / "m.onnx",
        ["ids"],
        oh.make_node("Gather", ["w", "ids"], ["a"], name="look"),
        oh.make_node("Gemm", ["a", "w"], ["y"], transB=1, name="multiply"),
    )
    read = 4 * WIDTH * 4
    whole = held(to.load(path).frontier(devices=1).fastest.found)
    assert (whole.static_bytes, whole.packed_bytes) == (TABLE, TABLE)
    pins = ["node:look=replicate", "node:multiply=column"]
    half = held(to.load(path).frontier(devices=2, mesh="2", pins=pins).fastest.found)
    assert (half.static_bytes, half.packed_bytes) == (read + TABLE // 2, 0)
