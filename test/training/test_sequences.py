"""Gradients through sequences, as PyTorch's exporter writes `chunk`, `split`, `stack`, `unbind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from training.harness import OPSET, check_model, normal

LITERALS = {"two": 2, "zero": 0, "one": 1, "last": -1, "sizes": [1, 3, 2]}


def sequences(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return a model of input `x` (4x6) and output `y`, with literals of the names above."""
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [4, 6])
    y = onnx.ValueInfoProto(name="y")
    held = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in LITERALS.items()]
    graph = helper.make_graph(nodes, "sequences", [x], [y], held)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def part(sequence: str, at: str, name: str) -> onnx.NodeProto:
    return helper.make_node("SequenceAt", [sequence, at], [name], name=name)


def test_a_gated_unit() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["s"], axis=-1, name="s"),
        part("s", "zero", "a"),
        part("s", "last", "b"),
        helper.make_node("Mul", ["a", "b"], ["y"], name="y"),
    ]

    def gated(tensors: Mapping[str, Any]) -> Any:
        a, _, b = tensors["x"].split(2, dim=-1)
        return a * b

    check_model(sequences(nodes), {"x": normal(4, 6)}, torch=gated)


def test_parts_of_several_sizes_in_another_order() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=1, name="s"),
        *(part("s", at, name) for at, name in (("zero", "a"), ("one", "b"), ("two", "c"))),
        helper.make_node("SequenceConstruct", ["c", "a", "b"], ["t"], name="t"),
        helper.make_node("ConcatFromSequence", ["t"], ["j"], axis=1, name="j"),
        helper.make_node("Mul", ["j", "x"], ["y"], name="y"),
    ]

    def turned(tensors: Mapping[str, Any]) -> Any:
        a, b, c = tensors["x"].split([1, 3, 2], dim=1)
        return torch.cat([c, a, b], 1) * tensors["x"]

    check_model(sequences(nodes), {"x": normal(4, 6)}, torch=turned)


def test_rows_that_are_unbound_and_stacked() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], keepdims=0, name="s"),
        helper.make_node("SequenceErase", ["s", "one"], ["t"], name="t"),
        part("s", "last", "row"),
        helper.make_node("SequenceInsert", ["t", "row", "zero"], ["u"], name="u"),
        helper.make_node("ConcatFromSequence", ["u"], ["j"], axis=-1, new_axis=1, name="j"),
        helper.make_node("Exp", ["j"], ["y"], name="y"),
    ]

    def stacked(tensors: Mapping[str, Any]) -> Any:
        a, _, c, d = tensors["x"].unbind(0)
        return torch.stack([d, a, c, d], -1).exp()

    check_model(sequences(nodes), {"x": normal(4, 6)}, torch=stacked)
