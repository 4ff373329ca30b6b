"""From the steps of a reshard to collectives, built at the current insertion point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.sizes import Size
from tensoropt.dialects.build import Build, shape_of, tensor_type
from tensoropt.dialects.collectives import (
    all_reduce,
    axis_constant,
    collective_permute,
    grid_axes,
    reduction_attr,
)
from tensoropt.dialects.mlir import ir, shard
from tensoropt.dialects.sizes import sizes_of_type
from tensoropt.dialects.topt import MESH

if TYPE_CHECKING:
    from tensoropt.compiler.reshard.resharder import Path
    from tensoropt.compiler.reshard.steps import ReshardStep

__all__ = ["lower_path"]

Shape = Sequence[Size]

_PAD_SINCE = 13
"""The first opset in which Pad takes all element types."""


def lower_path(
    value: ir.Value, shape: Shape, path: Path, mesh: Mesh, location: ir.Location, opset: int
) -> ir.Value:
    """Return ``value`` after every step of ``path``; ``shape`` is the global one.

    What a step cuts is padded before, what it joins loses its padding after.
    """
    make = Build(location, opset)
    for step in path.steps:
        value = _padded(make, value, step, shape, mesh)
        local = step.dst.local_shape(shape, mesh)
        made = list(local)
        for dim in _newly_whole(step, shape, mesh):
            made[dim] = step.src.pieces(dim, mesh) * _known(step.src.local_shape(shape, mesh)[dim])
        value = _LOWERINGS[step.kind](
            value, step, tensor_type(made, _element(value)), mesh, location
        )
        value = _cropped(make, value, local)
    return value


def _newly_whole(step: ReshardStep, shape: Shape, mesh: Mesh) -> list[int]:
    """Return the dimensions with padding that ``step`` joins."""
    before, after = step.src.padded_dims(shape, mesh), step.dst.padded_dims(shape, mesh)
    return [dim for dim in before if dim not in after]


def _padded(make: Build, x: ir.Value, step: ReshardStep, shape: Shape, mesh: Mesh) -> ir.Value:
    """Return ``x`` with zeros behind what ``step`` is to cut into parts that do not divide it."""
    before = step.src.padded_dims(shape, mesh)
    for dim in step.dst.padded_dims(shape, mesh):
        if dim not in before:
            size = _known(shape[dim])
            part = _known(step.dst.local_shape(shape, mesh)[dim])
            x = _resized(make, x, dim, size, part * step.dst.pieces(dim, mesh))
    return x


def _cropped(make: Build, x: ir.Value, local: Sequence[Size]) -> ir.Value:
    """Return ``x`` without what lies behind the sizes ``local``."""
    for dim, (own, wanted) in enumerate(zip(shape_of(x), local, strict=True)):
        if own is not None and own != wanted:
            x = _resized(make, x, dim, own, _known(wanted))
    return x


def _resized(make: Build, x: ir.Value, dim: int, own: int, wanted: int) -> ir.Value:
    """Return ``x`` with ``wanted`` points along ``dim``, where it has ``own``; zeros are new."""
    sizes = list(sizes_of_type(ir.RankedTensorType(x.type)))
    sizes[dim] = wanted
    if make.opset < _PAD_SINCE:  # which takes some element types alone: the last point again
        made = make.take(x, make.ints([min(n, own - 1) for n in range(wanted)]), dim)
    elif wanted > own:
        made = make.pad(x, dim, (0, wanted - own), 0)
    else:
        made = make.slice(x, dim, 0, wanted)
    made.set_type(tensor_type(sizes, _element(x)))
    return made


def _known(size: Size) -> int:
    assert isinstance(size, int), f"padding of a symbolic dimension: {size}"
    return size


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


def _all_reduce(
    value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    assert step.reduction is not None
    return all_reduce(value, step.axes, step.reduction, location)


def _along_dim(
    build: type[shard.AllGatherOp] | type[shard.AllSliceOp],
) -> Callable[..., ir.Value]:
    """Return the lowering of a collective whose one argument is the step's dimension."""

    def lower(
        value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh, location: ir.Location
    ) -> ir.Value:
        assert step.dim is not None
        axes = grid_axes(step.axes)
        return build(result, MESH, value, step.dim, grid_axes=axes, loc=location).result

    return lower


def _reduce_scatter(
    value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    assert step.reduction is not None and step.dim is not None
    return shard.ReduceScatterOp(
        result,
        MESH,
        value,
        step.dim,
        grid_axes=grid_axes(step.axes),
        reduction=reduction_attr(step.reduction),
        loc=location,
    ).result


def _all_to_all(
    value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    assert step.other_dim is not None and step.dim is not None
    return shard.AllToAllOp(
        result, MESH, value, step.other_dim, step.dim, grid_axes=grid_axes(step.axes), loc=location
    ).result


def _collective_permute(
    value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    return collective_permute(value, step.axes, step.sources(mesh), location)


def _partialize(
    value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh, location: ir.Location
) -> ir.Value:
    """Keep ``value`` on the first rank and zeros elsewhere; for max and min copies serve."""
    if step.reduction != "sum":
        return value
    first = np.zeros(mesh.extent(step.axes), dtype=bool)
    first[0] = True
    zero = ir.Operation.create(
        "onnx.Constant",
        results=[ir.RankedTensorType.get([], _element(value))],
        attributes={"value": _zero(_element(value))},
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
    "collective_permute": _collective_permute,
    "partialize": _partialize,
    "reduce_scatter": _reduce_scatter,
}
