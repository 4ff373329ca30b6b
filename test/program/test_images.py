"""Copies of images beside the tensors of a program, and what fusions leave out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import tensoropt as to

CHANNELS, SIZE = 16, 64
IMAGE = CHANNELS * SIZE * SIZE * 4


def model(path: Path, *nodes: onnx.NodeProto) -> Path:
    """A model that makes `y`, an image, of `x`; its nodes have the filter `w` at hand."""
    shape = [1, CHANNELS, SIZE, SIZE]
    weights = np.ones((CHANNELS, CHANNELS, 1, 1), np.float32)
    graph = oh.make_graph(
        list(nodes),
        "images",
        [oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)]), path)
    return path


def arena_bytes(path: Path) -> int:
    """What one rank touches of the arena."""
    point = to.load(path).frontier(devices=1).fastest.found
    return point.running.arena_bytes


CONV, SOFTMAX = (oh.make_node("Conv", ["x", "w"], ["a"]), oh.make_node("Softmax", ["a"], ["b"]))


@pytest.mark.parametrize(
    ("nodes", "images"),
    [
        ([CONV, oh.make_node("Conv", ["a", "w"], ["y"])], 1),  # in blocks from one to the other
        ([CONV, oh.make_node("Relu", ["a"], ["b"]), oh.make_node("Conv", ["b", "w"], ["y"])], 1),
        # The copy of `a` that is no longer in blocks, beside `a`, which is read again, and `b`.
        (
            [
                CONV,
                SOFTMAX,
                oh.make_node("Conv", ["a", "w"], ["c"]),
                oh.make_node("Mul", ["b", "c"], ["y"]),
            ],
            3,
        ),
        # The sum lies where the other operand does.
        (
            [
                CONV,
                oh.make_node("Conv", ["a", "w"], ["b"]),
                oh.make_node("Conv", ["b", "w"], ["c"]),
                oh.make_node("Add", ["c", "a"], ["d"]),
                oh.make_node("Conv", ["d", "w"], ["y"]),
            ],
            2,
        ),
        # The second result is written over the first, which nothing else reads.
        (
            [
                oh.make_node("Abs", ["x"], ["a"]),
                oh.make_node("Tanh", ["a"], ["b"]),
                oh.make_node("Exp", ["b"], ["y"]),
            ],
            1,
        ),
    ],
)
def test_images(tmp_path: Path, nodes: list[onnx.NodeProto], images: int) -> None:
    assert arena_bytes(model(tmp_path / "m.onnx", *nodes)) == images * IMAGE


@pytest.mark.parametrize(("spread", "copies"), [(False, 1), (True, 2)])
def test_a_choice_holds_what_it_takes_of_each(tmp_path: Path, spread: bool, copies: int) -> None:
    """Beside the operand and the result; of a single number it is as large as the condition."""
    other = "a" if spread else "zero"
    nodes = [
        oh.make_node("Exp", ["x"], ["a"]),
        oh.make_node("Where", ["mask", "a", other], ["b"]),
        oh.make_node("Exp", ["b"], ["y"]),
    ]
    path = model(tmp_path / "m.onnx", *nodes)
    proto = onnx.load(path)
    for name, array in (("mask", np.ones((SIZE, SIZE), bool)), ("zero", np.zeros((), np.float32))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, path)
    assert arena_bytes(path) == (2 + copies) * IMAGE
