"""Gradients of gathering and scattering by index."""

from __future__ import annotations

import math

from tensoropt.compiler.sharding.ops.scattering import row_numbers
from tensoropt.compiler.sharding.rule.factors import axis_of
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.compiler.training.gradients.scattering import (
    add_elements,
    add_slices,
    put_elements,
    zeros_of_run,
)
from tensoropt.dialects.build import element_type, int_attr, shape_of
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@gradient("Gather")
def gather(b: Backward) -> Gradients:
    """Slices of dY summed by index; for one constant index, dY padded with zeros."""
    make, shape = b.make, b.shape(0)
    axis, rank = axis_of(b.info, 0, len(shape)), len(b.shape(1))
    indices = b.literal(1)
    if indices is not None and indices.size == 1:
        at = int(indices.reshape(-1)[0]) % shape[axis]
        dy = b.make.reshape(b.dy, [*shape[:axis], 1, *shape[axis + 1 :]])
        return b.first(make.pad(dy, axis, (at, shape[axis] - at - 1), 0.0))
    tuples = make.unsqueeze(make.cast(b.operand(1), ir.IntegerType.get_signless(64)), [rank])
    rest = [*range(axis), *range(axis + rank, rank + len(shape) - 1)]
    updates = make.transpose(b.dy, [*range(axis, axis + rank), *rest])
    rows = add_slices(make, updates, tuples, [shape[axis], *shape[:axis], *shape[axis + 1 :]])
    return b.first(make.transpose(rows, [*range(1, axis + 1), 0, *range(axis + 1, len(shape))]))


@gradient("GatherElements")
def gather_elements(b: Backward) -> Gradients:
    """Elements of dY summed by index, padded if not all elements were read."""
    shape = b.shape(0)
    axis = axis_of(b.info, 0, len(shape))
    dx = add_elements(b.make, b.dy, b.operand(1), axis, shape[axis])
    for dim, (whole, read) in enumerate(zip(shape, b.shape(1), strict=True)):
        if dim != axis and read < whole:
            dx = b.make.pad(dx, dim, (0, whole - read), 0.0)
    return b.first(dx)


@gradient("GatherND")
def gather_nd(b: Backward) -> Gradients:
    """Slices of dY summed by index, within each batch."""
    make, shape, outer = b.make, b.shape(0), b.shape(1)[:-1]
    batch = int(b.info.attribute("batch_dims", 0))
    if not batch:
        return b.first(add_slices(make, b.dy, b.operand(1), shape))
    # The indexed dimensions are merged into one, and the dimensions after them into another.
    inner = batch + b.shape(1)[-1]
    size, width = math.prod(shape[batch:inner]), math.prod(shape[inner:])
    flat = [*outer[:batch], math.prod(outer[batch:]), width]
    rows = row_numbers(make, b.operand(1), shape[batch:inner])
    places = make.expand(make.reshape(rows, [*flat[:-1], 1]), flat)
    dx = add_elements(make, make.reshape(b.dy, flat), places, batch, size)
    return b.first(make.reshape(dx, shape))


@gradient("ScatterElements")
def scatter_elements(b: Backward) -> Gradients:
    """dUpdates: dY at the indices. dData: the rest of dY, or all of dY if updates were added."""
    added = _adds(b)
    axis = axis_of(b.info, 0, len(b.shape(0)))
    dx = updates = None
    if b.wanted[0]:
        zeros = None if added else b.make.zeros(b.operands[2])
        dx = b.dy if zeros is None else put_elements(b.make, b.dy, zeros, b.operand(1), axis)
    if b.wanted[2]:
        attributes = {"axis": int_attr(axis)}
        updates = b.make.onnx(
            "GatherElements", [b.dy, b.operand(1)], b.operands[2].type, **attributes
        )
    return [dx, None, updates]


@gradient("ScatterND")
def scatter_nd(b: Backward) -> Gradients:
    """dUpdates: dY at the indices. dData: the rest of dY, or all of dY if updates were added."""
    added = _adds(b)
    dx = updates = None
    if b.wanted[0]:
        zeros = None if added else b.make.zeros(b.operands[2])
        dx, indices = b.dy, b.operand(1)
        if zeros is not None:
            dx = b.make.onnx("ScatterND", [dx, indices, zeros], dx.type)
    if b.wanted[2]:
        updates = b.make.onnx("GatherND", [b.dy, b.operand(1)], b.operands[2].type)
    return [dx, None, updates]


def _adds(b: Backward) -> bool:
    """Return whether updates are added rather than assigned."""
    reduction = b.info.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise b.unsupported(f"expected reduction 'none' or 'add', got: '{reduction}'")
    return bool(reduction == "add")


@gradient("TopK")
def top_k(b: Backward) -> Gradients:
    """dY of the values, at the positions that they were taken from."""
    axis = axis_of(b.info, -1, len(b.shape(0)))
    zeros = zeros_of_run(b.make, b.result(1), element_type(b.dy), b.shape(0))
    return b.first(put_elements(b.make, zeros, b.dy, b.result(1), axis))


@gradient("OneHot")
def one_hot(b: Backward) -> Gradients:
    """The gradients of the values (off, on) are the sums of dY at cold and at hot positions."""
    import numpy as np

    make, dims = b.make, range(len(shape_of(b.dy)))
    flags = make.constant(make.like(np.array([0, 1]), b.dy))
    axis = int_attr(b.info.attribute("axis", -1))
    hot = make.onnx("OneHot", [b.operand(0), b.operand(1), flags], b.dy.type, axis=axis)
    on = make.reduce("ReduceSum", make.mul(b.dy, hot), dims, keepdims=False)
    off = make.sub(make.reduce("ReduceSum", b.dy, dims, keepdims=False), on)
    return [None, None, make.concat([make.unsqueeze(part, [0]) for part in (off, on)], 0)]
