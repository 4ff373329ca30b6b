"""Operators that move elements and change shapes."""

from __future__ import annotations

import math

import numpy as np

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


@maker(2.0)
def transpose(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 1)
    order = [int(axis) for axis in b.rng.permutation(x.rank)]
    b.add("Transpose", x, perm=None if b.flip(0.2) else order, exact="move")


def new_shape(b: Builder, shape: tuple[int, ...]) -> list[int]:
    """Return another shape of as many elements: dimensions joined, split, or with ones added."""
    dims = list(shape)
    for _ in range(b.integer(1, 3)):
        if len(dims) > 1 and b.flip():
            at = b.integer(0, len(dims) - 2)
            dims[at:at + 2] = [dims[at] * dims[at + 1]]  # fmt: skip
        elif dims and b.flip(0.7):
            at = b.integer(0, len(dims) - 1)
            factors = [n for n in range(1, dims[at] + 1) if dims[at] % n == 0]
            if factors:
                one = b.choose(factors)
                dims[at:at + 1] = [one, dims[at] // one]  # fmt: skip
        elif len(dims) < 5:
            dims.insert(b.integer(0, len(dims)), 1)
    return dims[:1] if len(dims) > 5 else dims


@maker(4.0)
def reshape(b: Builder) -> None:
    x = b.pick()
    dims = new_shape(b, x.shape)
    if math.prod(dims) != math.prod(x.shape):
        raise UnsuitableError("another size")
    allow = 1 if 0 in dims else None
    if allow is None:
        dims = [0 if i < x.rank and n == x.shape[i] and b.flip(0.3) else n
                for i, n in enumerate(dims)]  # fmt: skip
    if dims and b.flip(0.4) and 0 not in x.shape:
        dims[b.integer(0, len(dims) - 1)] = -1
    if allow and b.opset < 14:
        raise UnsuitableError("zeros are copied")
    b.add("Reshape", x, b.numbers_of(dims), allowzero=allow, exact="move")


@maker(0.7)
def flatten(b: Builder) -> None:
    x = b.pick()
    b.add("Flatten", x, axis=b.integer(-x.rank, x.rank), exact="move")


@maker(1.5)
def unsqueeze(b: Builder) -> None:
    x = b.pick(lambda v: v.rank < 5)
    axes = {b.integer(0, x.rank) for _ in range(b.integer(1, 2))}
    rank = x.rank + len(axes)
    axes = [axis - rank if b.flip(0.4) else axis for axis in axes if axis < rank]
    b.add("Unsqueeze", x, b.numbers_of(axes), exact="move")


@maker(1.5)
def squeeze(b: Builder) -> None:
    x = b.pick(lambda v: 1 in v.shape)
    if b.flip(0.3):
        b.add("Squeeze", x, exact="move")
        return
    ones = [axis for axis, n in enumerate(x.shape) if n == 1 and b.flip(0.7)]
    axes = [axis - x.rank if b.flip(0.4) else axis for axis in ones]
    b.add("Squeeze", x, b.numbers_of(axes), exact="move")


@maker(3.0)
def concat(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axis = b.axis(x.rank)
    at = axis % x.rank

    def fits(v: Value) -> bool:
        return v.dtype == x.dtype and v.rank == x.rank and all(
            m == n for i, (m, n) in enumerate(zip(v.shape, x.shape, strict=True)) if i != at
        )  # fmt: skip

    parts = [b.pick(fits) if b.flip(0.7) else _alike(b, x, at) for _ in range(b.integer(0, 3))]
    parts.insert(b.integer(0, len(parts)), x)
    b.add("Concat", *parts, axis=axis, exact="move")


def _alike(b: Builder, x: Value, axis: int) -> Value:
    shape = [b.size() if i == axis else n for i, n in enumerate(x.shape)]
    return b.weight(shape, x.dtype, x.bits is not None)


@maker(2.5)
def split(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axis, parts = b.axis(x.rank), b.integer(1, 3)
    size = x.shape[axis]
    if b.flip():
        cuts = sorted(b.integer(0, size) for _ in range(parts - 1))
        sizes = np.diff([0, *cuts, size])
        b.add("Split", x, b.numbers_of(sizes), results=parts, axis=axis, exact="move")
    elif b.opset >= 18:
        b.add("Split", x, results=parts, axis=axis, num_outputs=parts, exact="move")
    else:
        b.add("Split", x, results=parts, axis=axis, exact="move")


@maker(4.0)
def slicing(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axes = b.subset(x.rank, least=1)
    starts, ends, steps = [], [], []
    for axis in axes:
        start, end, step = _bounds(b, x.shape[axis])
        starts.append(start), ends.append(end), steps.append(step)
    told = [axis - x.rank if b.flip(0.3) else axis for axis in axes]
    operands = [b.numbers_of(starts), b.numbers_of(ends), b.numbers_of(told)]
    if any(step != 1 for step in steps) or b.flip(0.3):
        operands.append(b.numbers_of(steps))
    elif axes == list(range(len(axes))) and b.flip():
        operands.pop()
    b.add("Slice", x, *operands, exact="move")


def _bounds(b: Builder, size: int) -> tuple[int, int, int]:
    step = b.choose((1, 1, 1, 2, 3, -1, -2))
    start, end = sorted((b.integer(0, size), b.integer(0, size)))
    if b.flip(0.3):
        start, end = start - size, end - size or INT64_MAX
    if b.flip(0.2):
        start, end = b.choose((0, -100, INT64_MIN)), b.choose((end, 100, INT64_MAX))
    if step < 0:
        start, end = end, start
        if b.flip(0.4):
            start, end = b.choose((-1, 100, INT64_MAX)), b.choose((INT64_MIN, -100, end))
    return start, end, step


@maker(2.0)
def pad(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    mode = b.choose((None, "constant", "edge", "reflect", "wrap" if b.opset >= 19 else "edge"))
    low = -1 if mode in (None, "constant") and b.flip(0.3) else 0
    axes = b.subset(x.rank, least=1) if b.opset >= 18 and b.flip(0.4) else None
    count = x.rank if axes is None else len(axes)
    pads = [b.integer(low, 2) if b.flip() else 0 for _ in range(2 * count)]
    fill = b.numbers_of(b.integer(0, 3), x.dtype) if mode in (None, "constant") else None
    operands = [b.numbers_of(pads), fill if b.flip() else None]
    if axes is not None:
        operands.append(b.numbers_of([a - x.rank if b.flip(0.3) else a for a in axes]))
    b.add("Pad", x, *operands, mode=mode, exact="move")


@maker(1.5)
def tile(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    counts = [b.choose((0, 1, 1, 1, 2, 3)) for _ in range(x.rank)]
    b.add("Tile", x, b.numbers_of(counts), exact="move")


@maker(1.5)
def expand(b: Builder) -> None:
    x = b.pick()
    shape = [b.size() if n == 1 and b.flip(0.7) else b.choose((1, n)) for n in x.shape]
    shape = [b.size() for _ in range(b.integer(0, 2))] + shape
    b.add("Expand", x, b.numbers_of(shape), exact="move")


@maker(0.6)
def blocks(b: Builder) -> None:
    x = b.float(rank=4)
    if b.flip():
        mode = b.choose((None, "DCR", "CRD"))
        b.add("DepthToSpace", x, blocksize=2, mode=mode, exact="move")
    else:
        b.add("SpaceToDepth", x, blocksize=2, exact="move")


@maker(1.0)
def triangle(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 1)
    offset = [b.numbers_of(b.integer(-2, 2))] if b.flip() else []
    b.add("Trilu", x, *offset, upper=b.choose((None, 0, 1)), exact="move")


@maker(0.5)
def reversing(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 1)
    batch = b.integer(0, 1)
    lengths = b.rng.integers(1, x.shape[1 - batch] + 1, x.shape[batch])
    held = {"batch_axis": batch, "time_axis": 1 - batch}
    b.add("ReverseSequence", x, b.constant(lengths), exact="move", **held)


@maker(0.5, since=18)
def cropping(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axes = b.subset(x.rank, least=1)
    sizes = [b.integer(1, 6) for _ in axes]
    told = [a - x.rank if b.flip(0.3) else a for a in axes]
    b.add("CenterCropPad", x, b.numbers_of(sizes), axes=told, exact="move")
