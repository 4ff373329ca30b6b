"""Builders of upstream's `shard` collectives and of values that differ along mesh axes.

They build at the current insertion point. Shapes are local.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.sizes import part_of
from tensoropt.dialects.build import Build, shape_of, tensor_type
from tensoropt.dialects.elements import to_dense
from tensoropt.dialects.mlir import ir, shard
from tensoropt.dialects.topt import MESH, AxisConstantOp, CollectivePermuteOp
from tensoropt.dialects.topt.keys import TOGETHER
from tensoropt.runtime.support.collectives import COLLECTIVES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "COMBINED",
    "STARTED",
    "CollectiveKind",
    "all_gather",
    "all_reduce",
    "axes_of",
    "axis_constant",
    "collective_permute",
    "fill_padding",
    "grid_axes",
    "kind_of",
    "members_of",
    "ops_from",
    "reduction_attr",
]


def all_reduce(
    value: ir.Value, axes: Sequence[int], reduction: str, location: ir.Location
) -> ir.Value:
    """Return ``value`` reduced by sum, max or min over the ranks along ``axes``."""
    return shard.AllReduceOp(
        value.type,
        MESH,
        value,
        grid_axes=grid_axes(axes),
        reduction=reduction_attr(reduction),
        loc=location,
    ).result


def all_gather(
    value: ir.Value, dim: int, axes: Sequence[int], mesh: Mesh, location: ir.Location
) -> ir.Value:
    """Return the parts of the ranks along ``axes``, in order, joined along ``dim``."""
    kind = ir.RankedTensorType(value.type)
    shape = [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
    part = shape[dim]
    shape[dim] = None if part is None else part * mesh.extent(tuple(axes))
    result = tensor_type(shape, kind.element_type)
    return shard.AllGatherOp(
        result, MESH, value, dim, grid_axes=grid_axes(axes), loc=location
    ).result


def collective_permute(
    value: ir.Value, axes: Sequence[int], sources: Sequence[int], location: ir.Location
) -> ir.Value:
    """Return, at position ``c`` along ``axes``, the ``value`` of position ``sources[c]``."""
    return CollectivePermuteOp(
        input=value,
        grid_axes=grid_axes(axes),
        sources=ir.DenseI64ArrayAttr.get(list(sources)),
        output=value.type,
        loc=location,
    ).output


def axis_constant(
    values: npt.NDArray[np.generic], axes: Sequence[int], location: ir.Location
) -> ir.Value:
    """Return ``values[c]`` on the rank at row-major position ``c`` of ``axes``."""
    stacked = to_dense(values)
    kind = ir.RankedTensorType(stacked.type)
    result = ir.RankedTensorType.get(kind.shape[1:], kind.element_type)
    return AxisConstantOp(
        values=stacked, axes=ir.DenseI64ArrayAttr.get(list(axes)), output=result, loc=location
    ).output


def fill_padding(
    make: Build, x: ir.Value, dim: int, size: int, fill: float, axes: Sequence[int], mesh: Mesh
) -> ir.Value:
    """Return ``x`` with its padding along ``dim`` replaced by ``fill``.

    ``axes`` split the ``size`` points of dimension ``dim`` into parts that do not divide it.
    """
    import numpy as np

    pieces, ones = mesh.extent(tuple(axes)), len(shape_of(x)) - dim - 1
    part = part_of(size, pieces)
    real = (np.arange(part * pieces) < size).reshape(pieces, part, *[1] * ones)
    return make.where(axis_constant(real, axes, make.location), x, make.scalar(fill, x))


COMBINED = {own.ir_name: kind for kind, own in COLLECTIVES.items() if own.can_fuse}
"""Collectives that can be fused with others of their kind, with their names in this project."""

STARTED = {own.ir_name: kind for kind, own in COLLECTIVES.items() if own.can_overlap}
"""Collectives that can overlap operators."""


def members_of(first: ir.Operation) -> list[ir.Operation]:
    """Return the group of fused collectives that starts at ``first``; else ``first`` alone."""
    return ops_from(first, TOGETHER.get(first.attributes, 1))


def ops_from(first: ir.Operation, count: int) -> list[ir.Operation]:
    """Return ``count`` consecutive operations from ``first``, fewer at the end of its block.

    Linear in the block.
    """
    if count == 1:
        return [first]
    rest = dropwhile(lambda op: op.operation != first, first.block)
    return [op.operation for op in islice(rest, count)]


CollectiveKind = tuple[str, tuple[int, ...], str, str]
"""Kind, mesh axes, element type and reduction: equal in all collectives of a fused group."""


def kind_of(op: ir.Operation) -> CollectiveKind | None:
    """Return the kind that all collectives of a fused group share; ``None`` for any other op."""
    if op.name not in COMBINED:
        return None
    axes = axes_of(op)
    element = str(ir.RankedTensorType(op.operands[0].type).element_type)
    reduction = str(op.attributes["reduction"]) if "reduction" in op.attributes else ""
    return COMBINED[op.name], axes, element, reduction


def axes_of(op: ir.Operation) -> tuple[int, ...]:
    """Return the mesh axes that a collective runs over."""
    return tuple(int(axis) for axis in ir.DenseI16ArrayAttr(op.attributes["grid_axes"]))


def grid_axes(axes: Sequence[int]) -> ir.DenseI16ArrayAttr:
    """Return mesh axes as an attribute of upstream's collectives."""
    return ir.DenseI16ArrayAttr.get(list(axes))


def reduction_attr(reduction: str) -> ir.Attribute:
    """Return sum, max or min as an attribute of upstream's collectives."""
    return ir.Attribute.parse(f"#shard<partial {reduction}>")
