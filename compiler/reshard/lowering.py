"""Lowering of reshard steps to collectives, built at the current insertion point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.compiler.layout.sizes import Size, Sizes
from tensoropt.compiler.reshard.steps import ReshardStep, moves_of
from tensoropt.dialects.build import Build, tensor_type
from tensoropt.dialects.collectives import axis_constant, collective
from tensoropt.dialects.kernels import is_bfloat16
from tensoropt.dialects.mlir import ir, shard
from tensoropt.dialects.sizes import sizes_of_type
from tensoropt.dialects.topt import MESH
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = ["lower_step"]

Shape = Sequence[Size]

_PAD_SINCE = 13
"""First opset with a Pad that takes all element types of ONNX Runtime's kernels."""


def lower_step(
    value: ir.Value, shape: Shape, step: ReshardStep, mesh: Mesh, location: ir.Location, opset: int
) -> list[ir.Value]:
    """Lower ``step`` for ``value``, a rank's part of a tensor of ``shape``.

    Returns the result of each of its ``moves_of``, in order.
    """
    make, values = Build(location, opset), list[ir.Value]()
    for move in moves_of(step, shape, mesh):
        if move.kind == "pad" or move.kind == "crop":
            value = _resized(make, value, move.made)
        elif move.kind == "arrange" or move.kind == "restore":
            value = _reordered(make, value, step, move.kind, move.made, mesh)
        else:
            result = tensor_type(move.made, _element(value))
            value = _lower(make, value, step, result, mesh)
        values.append(value)
    return values


def _resized(make: Build, x: ir.Value, sizes: Shape) -> ir.Value:
    """Return ``x`` padded with zeros or cropped to ``sizes``, along its one changed dimension."""
    old = sizes_of_type(ir.RankedTensorType(x.type))
    ((dim, own, wanted),) = (
        (dim, *pair) for dim, pair in enumerate(zip(old, sizes, strict=True)) if pair[0] != pair[1]
    )
    assert isinstance(own, int) and isinstance(wanted, int), f"padding of a symbolic size: {own}"
    is_narrow = wanted > own and is_bfloat16(x.type)
    if make.opset < _PAD_SINCE or is_narrow:  # no Pad: gather, repeating the last point
        made = make.take(x, make.ints([min(n, own - 1) for n in range(wanted)]), dim)
    elif wanted > own:
        made = make.pad(x, dim, (0, wanted - own), 0)
    else:
        made = make.slice(x, dim, 0, wanted)
    made.set_type(tensor_type(list(sizes), _element(x)))
    return made


def _reordered(
    make: Build, x: ir.Value, step: ReshardStep, kind: str, made: Sizes, mesh: Mesh
) -> ir.Value:
    """Return ``x``, of sizes ``made``, with a dimension in blocks in the order of its pieces, or of
    its blocks.
    """
    before = sizes_of_type(ir.RankedTensorType(x.type))
    dim = step.arranged_dim if kind == "arrange" else step.restored_dim
    assert dim is not None
    end, size = (step.dst, before[dim]) if kind == "arrange" else (step.src, made[dim])
    division = _division(size, dim, end, step.axes, mesh)
    indices = division.order() if kind == "arrange" else division.places()
    result = make.take(x, make.ints(indices), dim)
    result.set_type(tensor_type(list(made), _element(x)))
    return result


def _division(size: Size, dim: int, end: Layout, axes: tuple[int, ...], mesh: Mesh) -> Division:
    """Return the pieces along ``axes`` of a dimension of ``size``, split as in ``end``."""
    assert isinstance(size, int), f"blocks of a symbolic size: {size}"
    return Division(size, mesh.extent(axes), end.blocks(dim), end.units(dim))


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


def _lower(
    make: Build, value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh
) -> ir.Value:
    if step.kind in COLLECTIVES:
        return collective(step.kind, value, step.axes, step.settings(mesh), make.location, result)
    lower = {"all_slice": _slice, "partialize": _partialize}[step.kind]
    return lower(make, value, step, result, mesh)


def _slice(
    make: Build, value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh
) -> ir.Value:
    assert step.dim is not None
    if step.dst.blocks(step.dim):
        size = sizes_of_type(ir.RankedTensorType(value.type))[step.dim]
        division = _division(size, step.dim, step.dst, step.axes, mesh)
        rows = np.array(division.order(), np.int64).reshape(division.pieces, -1)
        picked = axis_constant(rows, step.axes, make.location)
        made = make.take(value, picked, step.dim)
        made.set_type(result)
        return made
    axes = ir.DenseI16ArrayAttr.get(list(step.axes))
    return shard.AllSliceOp(result, MESH, value, step.dim, grid_axes=axes, loc=make.location).result


def _partialize(
    make: Build, value: ir.Value, step: ReshardStep, result: ir.Type, mesh: Mesh
) -> ir.Value:
    """Return ``value`` on the first rank and zeros elsewhere; for max and min, ``value`` itself."""
    if step.reduction != "sum":
        return value
    first = np.zeros(mesh.extent(step.axes), dtype=bool)
    first[0] = True
    zero = ir.Operation.create(
        "onnx.Constant",
        results=[ir.RankedTensorType.get([], _element(value))],
        attributes={"value": _zero(_element(value))},
        loc=make.location,
    ).results[0]
    keep = axis_constant(first, step.axes, make.location)
    where = ir.Operation.create(
        "onnx.Where", results=[result], operands=[keep, value, zero], loc=make.location
    )
    return where.results[0]


def _zero(element: ir.Type) -> ir.Attribute:
    kind = ir.RankedTensorType.get([], element)
    text = "0.0" if isinstance(element, ir.FloatType) else "false" if str(element) == "i1" else "0"
    return ir.Attribute.parse(f"dense<{text}> : {kind}")
