"""If, Loop and Scan, which have no gradient: beside the way to the loss, or on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper

from fuzz.gradients.draft import Draft, Value, maker

__all__: list[str] = []


def _element(d: Draft) -> int:
    return int(onnx.TensorProto.FLOAT if d.dtype == "float32" else onnx.TensorProto.DOUBLE)


def _operand(d: Draft) -> Value:
    """Return data, behind which there is nothing to refuse, or now and then any value."""
    return d.pick() if d.chance(0.2) else d.data(d.shape(d.whole(0, 3)))


@maker(0.3)
def branches(d: Draft) -> None:
    """An If whose branches read a value around them."""
    x = _operand(d)
    condition = d.leaf(d.inputs, "t", np.array(d.chance(0.5)))

    def branch(op_type: str) -> onnx.GraphProto:
        result = f"{x.name}_{op_type}"
        out = helper.make_tensor_value_info(result, _element(d), x.shape)
        return helper.make_graph(
            [helper.make_node(op_type, [x.name], [result])], op_type, [], [out]
        )

    held = {"then_branch": branch("Neg"), "else_branch": branch("Tanh")}
    d.add(
        "If", [condition], lambda c, x: -x if bool(c) else torch.tanh(x), held, captured=[x],
        refused=True,
    )  # fmt: skip


@maker(0.3)
def loop(d: Draft) -> None:
    """A Loop that adds a value to what it carries."""
    x, times = _operand(d), d.whole(0, 3)
    kind = _element(d)
    name = d.name("body")
    body = helper.make_graph(
        [
            helper.make_node("Add", [f"{name}_in", x.name], [f"{name}_out"]),
            helper.make_node("Identity", [f"{name}_go"], [f"{name}_on"]),
        ],
        name,
        [
            helper.make_tensor_value_info(f"{name}_i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{name}_go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{name}_in", kind, x.shape),
        ],
        [
            helper.make_tensor_value_info(f"{name}_on", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{name}_out", kind, x.shape),
        ],
    )
    first = d.data(x.shape)
    d.add(
        "Loop", [d.ints(times), None, first], lambda _, __, first, x: first + times * x,
        {"body": body}, captured=[x], refused=True,
    )  # fmt: skip


@maker(0.3)
def scan(d: Draft) -> None:
    """A Scan that sums up rows."""
    x = (
        d.pick([2], lambda v: v.size > 0)
        if d.chance(0.2)
        else d.data([d.whole(1, 3), d.whole(1, 3)])
    )
    kind, name = _element(d), d.name("body")
    body = helper.make_graph(
        [
            helper.make_node("Add", [f"{name}_in", f"{name}_row"], [f"{name}_out"]),
            helper.make_node("Identity", [f"{name}_out"], [f"{name}_sum"]),
        ],
        name,
        [
            helper.make_tensor_value_info(f"{name}_in", kind, x.shape[1:]),
            helper.make_tensor_value_info(f"{name}_row", kind, x.shape[1:]),
        ],
        [
            helper.make_tensor_value_info(f"{name}_out", kind, x.shape[1:]),
            helper.make_tensor_value_info(f"{name}_sum", kind, x.shape[1:]),
        ],
    )
    first = d.data(x.shape[1:])

    def summed(first: Any, x: Any) -> Any:
        sums = first + x.cumsum(0)
        return sums[-1], sums

    held = {"body": body, "num_scan_inputs": 1}
    d.add_many("Scan", [first, x], summed, held, there=(True, True), refused=True)
