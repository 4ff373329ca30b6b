"""If, Loop and Scan, whose bodies use values around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.builder import Array, Builder, Value, info_of
from fuzz.operators.registry import maker

Node = onnx.NodeProto


def body(
    b: Builder,
    nodes: Sequence[Node],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    like: Sequence[Array],
    stored: Sequence[onnx.TensorProto] = (),
) -> onnx.GraphProto:
    """Return a subgraph; ``like`` have the types of its outputs, whose shapes may stay unsaid."""
    ends = [
        info_of(name, array, array.shape if b.flip() else [None] * array.ndim)
        for name, array in zip(outputs, like, strict=True)
    ]
    return helper.make_graph(list(nodes), "body", list(inputs), ends, list(stored))


def named(b: Builder, text: str) -> str:
    return f"{text}{len(b.by_name)}"


def condition(b: Builder) -> Value:
    """Return a truth value: an input, a constant, or computed from a value."""
    if b.flip(0.4):
        return b.input((), "bool")
    if b.flip(0.2):
        return b.constant(np.asarray(b.flip()))
    x = b.pick(lambda v: v.bits is not None and v.dtype in ("float32", "int64"))
    total = b.add("ReduceSum", x, keepdims=0, exact="linear")[0]
    return b.add("Greater", total, b.numbers_of(0, x.dtype), exact="jump")[0]


def step(b: Builder, x: Value, source: str, target: str) -> tuple[list[Node], list[Value]]:
    """Return nodes that make ``target`` from ``source``, a tensor like ``x``; and the captured."""
    kind = b.choose(("Add", "Mul", "Relu", "MatMul", "Neg"))
    if kind == "MatMul" and x.rank > 1 and x.is_float:
        w = b.weight((x.shape[-1], x.shape[-1]), x.dtype, exact=False)
        return [helper.make_node(kind, [source, w.name], [target])], [w]
    if kind in ("Add", "Mul"):
        y = b.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape)
        return [helper.make_node(kind, [source, y.name], [target])], [y]
    return [helper.make_node("Relu" if kind == "Relu" else "Neg", [source], [target])], []


def number(x: Value) -> bool:
    return x.dtype in ("float32", "float64", "int32", "int64")


@maker(1.5)
def branches(b: Builder) -> None:
    x, truth = b.pick(number), condition(b)
    graphs, captured = [], [x]
    for side in ("t", "e"):
        name = named(b, f"{side}_out")
        nodes, held = step(b, x, x.name, name)
        if b.flip(0.3):
            nodes = [helper.make_node("Identity", [x.name], [name])]
        graphs.append(body(b, nodes, [], [name], [x.array]))
        captured += held
    b.add("If", truth, captured=captured, then_branch=graphs[0], else_branch=graphs[1])


@maker(0.5)
def branches_of_other_shapes(b: Builder) -> None:
    x, truth = b.pick(lambda v: number(v) and v.rank > 0), condition(b)
    names = [named(b, "t_out"), named(b, "e_out")]
    nodes = [
        helper.make_node("Concat", [x.name, x.name], [names[0]], axis=0),
        helper.make_node("Identity", [x.name], [names[1]]),
    ]
    ends = [info_of(name, x.array, [None] * x.rank) for name in names]
    graphs = [helper.make_graph([node], "body", [], [end])
              for node, end in zip(nodes, ends, strict=True)]  # fmt: skip
    b.add("If", truth, captured=[x], then_branch=graphs[0], else_branch=graphs[1])


@maker(1.5)
def loop(b: Builder) -> None:
    x = b.pick(number)
    turn, keep, state, after, kept, scanned = (
        named(b, text) for text in ("turn", "keep", "state", "after", "kept", "scan")
    )
    nodes, captured = step(b, x, state, after)
    nodes = [
        *nodes,
        helper.make_node("Identity", [keep], [kept]),
        helper.make_node("Identity", [after if b.flip() else state], [scanned]),
    ]
    inputs = [
        helper.make_tensor_value_info(turn, onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info(keep, onnx.TensorProto.BOOL, []),
        info_of(state, x.array),
    ]
    truth = np.asarray(True)
    graph = body(b, nodes, inputs, [kept, after, scanned], [truth, x.array, x.array])
    trips = b.constant(np.asarray(b.integer(0, 3))) if b.flip(0.7) else _trips(b)
    first = b.constant(truth) if b.flip() else None
    b.add("Loop", trips, first, x, results=2, captured=captured, body=graph)


def _trips(b: Builder) -> Value:
    x = b.pick(lambda v: v.rank > 0)
    return b.add("Gather", b.add("Shape", x)[0], b.numbers_of(b.axis(x.rank)), axis=0)[0]


@maker(1.5)
def scan(b: Builder) -> None:
    x = b.pick(lambda v: number(v) and v.rank > 0 and v.array.size > 0)  # else it divides by zero
    axis = b.axis(x.rank)
    part = np.take(x.array, 0, axis=axis)
    state, own, after, scanned = (named(b, text) for text in ("state", "own", "after", "scan"))
    nodes = [
        helper.make_node("Add", [state, own], [after]),
        helper.make_node("Identity" if b.flip() else "Neg", [after], [scanned]),
    ]
    first = b.constant(np.zeros(part.shape, x.array.dtype))
    captured: list[Value] = []
    if b.flip():
        w = b.pick(lambda v: v.dtype == x.dtype and v.shape == part.shape)
        captured.append(w)
        nodes.insert(0, helper.make_node("Mul", [own, w.name], [f"{own}_w"]))
        nodes[1].input[1] = f"{own}_w"
    inputs = [info_of(state, part), info_of(own, part)]
    graph = body(b, nodes, inputs, [after, scanned], [part, part])
    held = {
        "scan_input_axes": [axis] if axis or b.flip() else None,
        "scan_input_directions": [1] if b.flip(0.3) else None,
        "scan_output_axes": [b.integer(0, part.ndim)] if b.flip(0.3) else None,
        "scan_output_directions": [1] if b.flip(0.3) else None,
    }
    b.add("Scan", first, x, results=2, captured=captured, body=graph, num_scan_inputs=1, **held)


@maker(0.6)
def nested(b: Builder) -> None:
    """Add an If in a Loop, whose branches use what lies outside both, and a weight of their own."""
    x = b.pick(lambda v: v.dtype == "float32" and v.rank > 0)
    turn, keep, state, after, kept, odd = (
        named(b, text) for text in ("turn", "keep", "state", "after", "kept", "odd")
    )
    own = numpy_helper.from_array(b.numbers(x.shape[-1:], exact=True), f"{turn}_w")
    branches = [
        body(b, [helper.make_node("Add", [state, x.name], [f"{turn}_t"])], [], [f"{turn}_t"],
             [x.array]),
        body(b, [helper.make_node("Mul", [state, own.name], [f"{turn}_e"])], [], [f"{turn}_e"],
             [x.array], [own]),
    ]  # fmt: skip
    one = numpy_helper.from_array(np.asarray(1), f"{turn}_one")
    nodes = [
        helper.make_node("Equal", [turn, one.name], [odd]),
        helper.make_node("If", [odd], [after], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Identity", [keep], [kept]),
    ]
    inputs = [
        helper.make_tensor_value_info(turn, onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info(keep, onnx.TensorProto.BOOL, []),
        info_of(state, x.array),
    ]
    truth = np.asarray(True)
    graph = body(b, nodes, inputs, [kept, after], [truth, x.array], [one])
    b.add("Loop", b.constant(np.asarray(b.integer(0, 3))), None, x, captured=[x], body=graph)
