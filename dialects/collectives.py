"""Building the collectives of upstream's `shard` dialect, and what differs along mesh axes.

All functions build at the current insertion point. Shapes are local ones.
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

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "COMBINED",
    "STARTED",
    "Alike",
    "all_gather",
    "all_reduce",
    "axes_of",
    "axis_constant",
    "collective_permute",
    "filled",
    "from_on",
    "grid_axes",
    "kind_of",
    "members_of",
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
    """Return, on the rank at place ``c`` along ``axes``, ``value`` of that at ``sources[c]``."""
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


def filled(
    make: Build, x: ir.Value, dim: int, size: int, fill: float, axes: Sequence[int], mesh: Mesh
) -> ir.Value:
    """Return ``x`` with ``fill`` for the padding of the ranks along ``axes``, which split tensor
    dimension ``dim`` of ``size`` points into parts that do not divide it."""
    import numpy as np

    pieces, ones = mesh.extent(tuple(axes)), len(shape_of(x)) - dim - 1
    part = part_of(size, pieces)
    real = (np.arange(part * pieces) < size).reshape(pieces, part, *[1] * ones)
    return make.where(axis_constant(real, axes, make.location), x, make.scalar(fill, x))


COMBINED = {
    "shard.all_reduce": "all_reduce",
    "shard.all_gather": "all_gather",
    "shard.reduce_scatter": "reduce_scatter",
}
"""The collectives of which several can be sent as one, and how we call them."""

STARTED = {**COMBINED, "shard.all_to_all": "all_to_all"}
"""Those that can run beside operators."""


def members_of(first: ir.Operation) -> list[ir.Operation]:
    """Return the collectives that are sent as one, of which ``first`` is the first; else itself."""
    return from_on(first, TOGETHER.get(first.attributes, 1))


def from_on(first: ir.Operation, count: int) -> list[ir.Operation]:
    """Return so many operations of a block in a row, fewer where it ends. Linear in the block."""
    if count == 1:
        return [first]
    rest = dropwhile(lambda op: op.operation != first, first.block)
    return [op.operation for op in islice(rest, count)]


Alike = tuple[str, tuple[int, ...], str, str]
"""Kind, mesh axes, element type and reduction: what is equal in collectives that are one."""


def kind_of(op: ir.Operation) -> Alike | None:
    """Return what collectives have in common that can be one; ``None`` for any other op."""
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
    """Return mesh axes as the collectives of upstream's dialect take them."""
    return ir.DenseI16ArrayAttr.get(list(axes))


def reduction_attr(reduction: str) -> ir.Attribute:
    """Return sum, max or min as the collectives of upstream's dialect take it."""
    return ir.Attribute.parse(f"#shard<partial {reduction}>")
