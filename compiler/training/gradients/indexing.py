"""Gradients of gathering and scattering by index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensoropt.compiler.sharding.loops import axis_of
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.compiler.training.gradients.scattering import add_elements, add_rows, put_elements
from tensoropt.dialects.build import Build, int_attr, shape_of

__all__: list[str] = []


@gradient("Gather")
def gather(b: Backward) -> Gradients:
    """Rows of the gradient added up by index; padding with zeros for one constant index."""
    shape = b.shape(0)
    axis = axis_of(b.info, 0, len(shape))
    indices = b.literal(1)
    count = math.prod(b.shape(1))
    merged = [*shape[:axis], count, *shape[axis + 1 :]]
    dy = b.dy if merged == shape_of(b.dy) else b.make.reshape(b.dy, merged)
    if indices is not None and count == 1:
        at = int(indices.reshape(-1)[0]) % shape[axis]
        return b.first(b.make.pad(dy, axis, (at, shape[axis] - at - 1), 0.0))
    flat = b.make.reshape(b.operand(1), [count])
    return b.first(add_rows(b.make, dy, flat, axis, shape[axis]))


@gradient("GatherElements")
def gather_elements(b: Backward) -> Gradients:
    """Elements of the gradient added up by index, padded where not all was read."""
    shape = b.shape(0)
    axis = axis_of(b.info, 0, len(shape))
    dx = add_elements(b.make, b.dy, b.operand(1), axis, shape[axis])
    for dim, (whole, read) in enumerate(zip(shape, b.shape(1), strict=True)):
        if dim != axis and read < whole:
            dx = b.make.pad(dx, dim, (0, whole - read), 0.0)
    return b.first(dx)


@gradient("GatherND")
def gather_nd(b: Backward) -> Gradients:
    """Slices of the gradient added up by index, the indexed dimensions being one."""
    shape, batch = b.shape(0), b.info.attribute("batch_dims", 0)
    depth = b.shape(1)[-1]
    indexed, rest = shape[: batch + depth], shape[batch + depth :]
    rows = _row_numbers(b.make, b.operand(1), indexed, batch)
    count = math.prod(b.shape(1)[:-1])
    updates = b.make.reshape(b.dy, [count, *rest])
    size = math.prod(indexed)
    dx = add_rows(b.make, updates, b.make.reshape(rows, [count]), 0, size)
    return b.first(b.make.reshape(dx, shape))


def _row_numbers(make: Build, indices: Any, sizes: Sequence[int], batch: int) -> Any:
    """Return the row-major number of each index tuple (int64) in a tensor of ``sizes``.

    The first ``batch`` dimensions of the indices number their own place.
    """
    import numpy as np

    held = [n or 0 for n in shape_of(indices)]
    strides = [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    zero, inner = make.scalar(0, indices), make.ints(sizes[batch:])
    wrapped = make.where(make.compare("Less", indices, zero), make.add(indices, inner), indices)
    rows = make.mul(wrapped, make.ints(strides[batch:]))
    rows = make.reduce("ReduceSum", rows, [len(held) - 1], keepdims=False)
    if not batch:
        return rows
    starts = np.arange(math.prod(sizes[:batch]), dtype=np.int64) * strides[batch - 1]
    ones = [1] * (len(held) - 1 - batch)
    return make.add(rows, make.constant(starts.reshape([*sizes[:batch], *ones])))


@gradient("ScatterElements")
def scatter_elements(b: Backward) -> Gradients:
    """The gradient at the indices for the updates; the rest of it, or all if they were added."""
    added = _adds(b)
    axis = axis_of(b.info, 0, len(b.shape(0)))
    dx = updates = None
    if b.wanted[0]:
        zeros = None if added else b.make.zeros(b.operands[2])
        dx = b.dy if added else put_elements(b.make, b.dy, zeros, b.operand(1), axis)
    if b.wanted[2]:
        held = {"axis": int_attr(axis)}
        updates = b.make.onnx("GatherElements", [b.dy, b.operand(1)], b.operands[2].type, **held)
    return [dx, None, updates]


@gradient("ScatterND")
def scatter_nd(b: Backward) -> Gradients:
    """The gradient at the indices for the updates; the rest of it, or all if they were added."""
    added = _adds(b)
    dx = updates = None
    if b.wanted[0]:
        zeros = None if added else b.make.zeros(b.operands[2])
        operands = [b.dy, b.operand(1), zeros]
        dx = b.dy if added else b.make.onnx("ScatterND", operands, b.dy.type)
    if b.wanted[2]:
        updates = b.make.onnx("GatherND", [b.dy, b.operand(1)], b.operands[2].type)
    return [dx, None, updates]


def _adds(b: Backward) -> bool:
    """Say whether updates are added and do not replace."""
    reduction = b.info.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise b.refused(f"expected reduction 'none' or 'add', got: '{reduction}'")
    return bool(reduction == "add")


@gradient("TopK")
def top_k(b: Backward) -> Gradients:
    """The gradient of the values, put where they were found."""
    axis = axis_of(b.info, -1, len(b.shape(0)))
    zeros = b.make.zeros(b.operands[0])
    return b.first(put_elements(b.make, zeros, b.dy, b.result(1), axis))


@gradient("OneHot")
def one_hot(b: Backward) -> Gradients:
    """The values (off, on) get the sums of the gradient where the hot ones are, and elsewhere."""
    import numpy as np

    make, dims = b.make, range(len(shape_of(b.dy)))
    flags = make.constant(make.like(np.array([0, 1]), b.dy))
    axis = int_attr(b.info.attribute("axis", -1))
    hot = make.onnx("OneHot", [b.operand(0), b.operand(1), flags], b.dy.type, axis=axis)
    on = make.reduce("ReduceSum", make.mul(b.dy, hot), dims, keepdims=False)
    off = make.sub(make.reduce("ReduceSum", b.dy, dims, keepdims=False), on)
    return [None, None, make.concat([make.unsqueeze(part, [0]) for part in (off, on)], 0)]
