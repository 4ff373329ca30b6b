"""Builders of collectives and of values that differ along mesh axes.

They build at the current insertion point. Shapes are local.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from tensoropt.dialects.build import Build, shape_of
from tensoropt.dialects.elements import to_dense
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import MESH, AxisConstantOp
from tensoropt.dialects.topt.keys import TOGETHER
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import COLLECTIVES, Settings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "COMBINED",
    "STARTED",
    "CollectiveKind",
    "axes_of",
    "axis_constant",
    "collective",
    "fill_padding",
    "kind_of",
    "members_of",
    "ops_from",
]


def collective(
    kind: str,
    value: ir.Value,
    axes: Sequence[int],
    settings: Settings,
    location: ir.Location,
    result: ir.Type | None = None,
    rows: ir.Value | None = None,
) -> ir.Value:
    """Return the result of a collective of ``value`` over the ranks along ``axes``.

    ``settings`` are the attributes of its operator, ``rows`` the second operand if it has one. The
    type of the ``result`` is the type of ``value`` by default.
    """
    traits = COLLECTIVES[kind]
    attributes = {traits.attributes[name]: _attribute(own) for name, own in settings.items()}
    attributes["grid_axes"] = ir.DenseI16ArrayAttr.get(list(axes))
    if traits.ir_name.startswith("shard."):  # upstream's operations name their grid
        attributes["grid"] = ir.FlatSymbolRefAttr.get(MESH)
    return ir.Operation.create(
        traits.ir_name,
        results=[value.type if result is None else result],
        operands=[value] if rows is None else [value, rows],
        attributes=attributes,
        loc=location,
    ).results[0]


def _attribute(setting: int | str | Sequence[int]) -> ir.Attribute:
    if isinstance(setting, str):
        return ir.Attribute.parse(f"#shard<partial {setting}>")
    if isinstance(setting, int):
        return ir.IntegerAttr.get(ir.Type.parse("index"), setting)
    return ir.DenseI64ArrayAttr.get(list(setting))


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

    ``axes`` split the ``size`` points of dimension ``dim`` into parts with padding.
    """
    import numpy as np

    pieces, ones = mesh.extent(tuple(axes)), len(shape_of(x)) - dim - 1
    part = shape_of(x)[dim]
    assert part is not None, "padding of a symbolic dimension"
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
