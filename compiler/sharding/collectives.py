"""Building the collectives of upstream's `shard` dialect, and whole reshard paths, from them.

All functions build at the current insertion point. Shapes are local ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.elements import to_dense
from tensoropt.dialects.mlir import ir, shard
from tensoropt.dialects.topt import MESH, AxisConstantOp

if TYPE_CHECKING:
    from tensoropt.compiler.layout.reshard import Path
    from tensoropt.compiler.layout.steps import Step

__all__ = ["all_gather", "all_reduce", "axis_constant", "lower_path"]

Shape = Sequence[int | None]


def all_reduce(
    value: ir.Value, axes: Sequence[int], reduction: str, location: ir.Location
) -> ir.Value:
    """Return ``value`` reduced by sum, max or min over the ranks along ``axes``."""
    return shard.AllReduceOp(
        value.type,
        MESH,
        value,
        grid_axes=_axes(axes),
        reduction=_reduction(reduction),
        loc=location,
    ).result


def all_gather(
    value: ir.Value, dim: int, axes: Sequence[int], mesh: Mesh, location: ir.Location
) -> ir.Value:
    """Return the parts of the ranks along ``axes``, in order, joined along static ``dim``."""
    kind = ir.RankedTensorType(value.type)
    shape = [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
    shape[dim] = kind.get_dim_size(dim) * mesh.extent(tuple(axes))
    result = tensor_type(shape, kind.element_type)
    return shard.AllGatherOp(result, MESH, value, dim, grid_axes=_axes(axes), loc=location).result


def axis_constant(values: Any, axes: Sequence[int], location: ir.Location) -> ir.Value:
    """Return ``values[c]`` on the rank at row-major position ``c`` of ``axes``."""
    stacked = to_dense(values)
    result = ir.RankedTensorType.get(stacked.type.shape[1:], stacked.type.element_type)
    return AxisConstantOp(
        values=stacked, axes=ir.DenseI64ArrayAttr.get(list(axes)), output=result, loc=location
    ).output


def lower_path(
    value: ir.Value, shape: Shape, path: Path, mesh: Mesh, location: ir.Location
) -> ir.Value:
    """Return ``value`` after every step of ``path``; ``shape`` is the global one."""
    for step in path.steps:
        local = step.dst.local_shape(shape, mesh)
        result = tensor_type(local, value.type.element_type)
        value = _LOWERINGS[step.kind](value, step, result, mesh, location)
    return value


def _axes(axes: Sequence[int]) -> ir.Attribute:
    return ir.DenseI16ArrayAttr.get(list(axes))


def _reduction(reduction: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#shard<partial {reduction}>")


def _all_reduce(
    value: ir.Value, step: Step, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    assert step.reduction is not None
    return all_reduce(value, step.axes, step.reduction, location)


def _along_dim(build: type[Any]) -> Callable[..., ir.Value]:
    """Return the lowering of a collective whose one argument is the step's dimension."""

    def lower(
        value: ir.Value, step: Step, result: ir.Type, mesh: Mesh, location: ir.Location
    ) -> ir.Value:
        axes = _axes(step.axes)
        return build(result, MESH, value, step.dim, grid_axes=axes, loc=location).result

    return lower


def _reduce_scatter(
    value: ir.Value, step: Step, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    assert step.reduction is not None
    return shard.ReduceScatterOp(
        result,
        MESH,
        value,
        step.dim,
        grid_axes=_axes(step.axes),
        reduction=_reduction(step.reduction),
        loc=location,
    ).result


def _all_to_all(
    value: ir.Value, step: Step, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    return shard.AllToAllOp(
        result, MESH, value, step.other_dim, step.dim, grid_axes=_axes(step.axes), loc=location
    ).result


def _partialize(
    value: ir.Value, step: Step, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    """Keep ``value`` on the first rank and zeros elsewhere; for max and min copies serve."""
    if step.reduction != "sum":
        return value
    first = np.zeros(mesh.extent(step.axes), dtype=bool)
    first[0] = True
    zero = ir.Operation.create(
        "onnx.Constant",
        results=[ir.RankedTensorType.get([], value.type.element_type)],
        attributes={"value": _zero(value.type.element_type)},
        loc=location,
    ).results[0]
    keep = axis_constant(first, step.axes, location)
    where = ir.Operation.create(
        "onnx.Where", results=[result], operands=[keep, value, zero], loc=location
    )
    return where.results[0]


def _zero(element: ir.Type) -> ir.Attribute:
    kind = ir.RankedTensorType.get([], element)
    text = "0.0" if isinstance(element, ir.FloatType) else "false" if str(element) == "i1" else "0"
    return ir.Attribute.parse(f"dense<{text}> : {kind}")


_LOWERINGS: dict[str, Callable[..., ir.Value]] = {
    "all_gather": _along_dim(shard.AllGatherOp),
    "all_reduce": _all_reduce,
    "all_slice": _along_dim(shard.AllSliceOp),
    "all_to_all": _all_to_all,
    "partialize": _partialize,
    "reduce_scatter": _reduce_scatter,
}
