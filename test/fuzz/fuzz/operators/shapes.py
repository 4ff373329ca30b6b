"""Chains of shape arithmetic, as exporters write them, and what makes tensors of nothing."""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker


def sizes_of(b: Builder, x: Value) -> Value:
    """Return the shape of ``x``, or a part of it."""
    held: dict[str, int] = {}
    if b.opset >= 15 and b.flip(0.2):
        held = {"start": b.integer(-x.rank, 0), "end": b.integer(0, x.rank)}
    return b.add("Shape", x, **held)[0]


def one_size(b: Builder, x: Value, axis: int) -> Value:
    """Return the size of a dimension of ``x`` as a list of one."""
    shape = b.add("Shape", x)[0]
    if b.flip():
        return b.add("Gather", shape, b.numbers_of([axis]), axis=0)[0]
    if b.flip():
        end = axis + 1 or 2**63 - 1
        return b.add("Slice", shape, b.numbers_of([axis]), b.numbers_of([end]))[0]
    alone = b.add("Gather", shape, b.numbers_of(axis), axis=0)[0]
    return b.add("Unsqueeze", alone, b.numbers_of([0]))[0]


@maker(2.0)
def shape(b: Builder) -> None:
    sizes_of(b, b.pick())


@maker(0.5)
def count(b: Builder) -> None:
    b.add("Size", b.pick())


@maker(4.0)
def reshape_by_arithmetic(b: Builder) -> None:
    """Add a Reshape to some sizes of the tensor itself and -1."""
    x = b.pick(lambda v: v.rank > 0)
    if 0 in x.shape:
        raise UnsuitableError("what is left of nothing is not known")
    kept = b.subset(x.rank)
    parts = [one_size(b, x, a - x.rank if b.flip() else a) for a in kept]
    parts.insert(b.integer(0, len(parts)), b.numbers_of([-1]))
    target = b.add("Concat", *parts, axis=0)[0] if len(parts) > 1 else parts[0]
    b.add("Reshape", x, target, exact="move")


@maker(1.5)
def reshape_by_product(b: Builder) -> None:
    """Add a Reshape that joins dimensions, whose sizes are multiplied."""
    x = b.pick(lambda v: v.rank > 1)
    at = b.integer(0, x.rank - 2)
    sizes = [one_size(b, x, axis) for axis in range(x.rank)]
    joined = b.add("Mul", sizes[at], sizes[at + 1])[0]
    parts = [*sizes[:at], joined, *sizes[at + 2:]]  # fmt: skip
    target = b.add("Concat", *parts, axis=0)[0] if len(parts) > 1 else parts[0]
    if 0 in x.shape:
        raise UnsuitableError("zeros are copied")
    b.add("Reshape", x, target, exact="move")


@maker(1.5)
def expand_to_another(b: Builder) -> None:
    x, y = b.pick(), b.pick()
    b.add("Expand", x, sizes_of(b, y), exact="move")


@maker(1.0)
def filled(b: Builder) -> None:
    x = b.pick()
    if math.prod(x.shape) > 512:
        raise UnsuitableError("too large")
    kind = b.choose(("float32", "int64", "bool", None))
    value = None if kind is None else numpy_helper.from_array(np.ones(1, kind))
    b.add("ConstantOfShape", sizes_of(b, x), value=value, exact="move")


@maker(1.0)
def numbered(b: Builder) -> None:
    """Add the numbers from 0 to a size, as masks are made of."""
    x = b.pick(lambda v: v.rank > 0)
    end = b.add("Gather", b.add("Shape", x)[0], b.numbers_of(b.axis(x.rank)), axis=0)[0]
    b.add("Range", b.numbers_of(0), end, b.numbers_of(b.choose((1, 2))))


@maker(1.0)
def slice_by_arithmetic(b: Builder) -> None:
    """Add a Slice whose end is computed from a size."""
    x = b.pick(lambda v: v.rank > 0)
    axis = b.axis(x.rank)
    size = one_size(b, x, axis)
    kind = b.choose(("Div", "Sub", "Add"))
    end = b.add(kind, size, b.numbers_of([b.integer(1, 2)]))[0]
    b.add("Slice", x, b.numbers_of([0]), end, b.numbers_of([axis]), exact="move")
