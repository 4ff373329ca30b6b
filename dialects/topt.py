"""The `topt` dialect: layouts with partial sums, strategies, reshards, axis constants.

No `from __future__ import annotations` here: the bindings read the field annotations as types.
"""

from collections.abc import Sequence
from typing import Any

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ext, ir

__all__ = [
    "MESH",
    "AxisConstantOp",
    "CostAttr",
    "LayoutAttr",
    "ReshardOp",
    "StrategyAttr",
    "Topt",
    "cost_attr",
    "layout_attr",
    "layout_of",
    "layouts_of_strategy",
    "mesh_of",
    "set_mesh",
    "strategy_attr",
]

MESH = "mesh"


class Topt(ext.Dialect, name="topt"):
    """Layouts, strategies and reshards on top of upstream's `shard` dialect."""


class LayoutAttr(Topt.Attribute, name="layout"):  # type: ignore[name-defined,misc]
    """`#topt.layout<@mesh, ["S(0)", "R"]>`: one placement per axis of the mesh."""

    mesh: ir.FlatSymbolRefAttr
    placements: ir.ArrayAttr


class StrategyAttr(Topt.Attribute, name="strategy"):  # type: ignore[name-defined,misc]
    """`#topt.strategy<[layouts of operands], [layouts of results]>`."""

    operands: ir.ArrayAttr
    results: ir.ArrayAttr


class CostAttr(Topt.Attribute, name="cost"):  # type: ignore[name-defined,misc]
    """`#topt.cost<time_s : f64, static_bytes : i64, transient_bytes : i64>` of one op on one rank.

    Seconds of a step; bytes kept for the whole run; bytes read and written while the op runs.
    """

    time_s: ir.FloatAttr
    static_bytes: ir.IntegerAttr
    transient_bytes: ir.IntegerAttr


class ReshardOp(Topt.Operation, name="reshard", traits=[ext.Pure]):  # type: ignore[name-defined,misc]
    """Moves a tensor from one layout to another; the shape is the global one on both sides."""

    input: ext.Operand[Any]
    src: LayoutAttr
    dst: LayoutAttr
    output: ext.Result[Any]

    def verify_invariants(self) -> bool:
        return all(check(self) for check in (_check_types, _check_layouts))


class AxisConstantOp(Topt.Operation, name="axis_constant", traits=[ext.Pure]):  # type: ignore[name-defined,misc]
    """A constant that differs along mesh axes: position c of the axes gets `values[c]`."""

    values: Any
    axes: Any
    output: ext.Result[Any]

    def verify_invariants(self) -> bool:
        values, output = self.values.type, self.output.type
        if list(values.shape[1:]) == list(output.shape):
            return True
        return _fail(self, f"'values' must be shaped Nx{output}, expected one result per position")


def _fail(op: Any, message: str) -> bool:
    op.location.emit_error(f"'{op.operation.name}' op {message}")
    return False


def _check_types(op: Any) -> bool:
    if op.input.type == op.output.type:
        return True
    return _fail(op, f"changes the type, expected {op.input.type}, got: {op.output.type}")


def _check_layouts(op: Any) -> bool:
    for name in ("src", "dst"):
        try:
            layout = layout_of(op.attributes[name])
            mesh = mesh_of(op.operation)
        except UserError as error:
            return _fail(op, f"'{name}' {error}")
        if len(layout.placements) != len(mesh.shape):
            return _fail(
                op,
                f"'{name}' has {len(layout.placements)} placements, expected one per axis of "
                f"mesh {mesh}",
            )
        shape = _static_shape(op.input.type)
        misfit = layout.misfit(shape, mesh) if shape is not None else None
        if misfit is not None:
            text = f"'{name}' {layout} does not divide {op.input.type} on mesh {mesh}"
            return _fail(op, f"{text}: {misfit}")
    return True


def _static_shape(type_: Any) -> list[int | None] | None:
    if not isinstance(type_, ir.RankedTensorType):
        return None
    return [None if type_.is_dynamic_dim(d) else type_.get_dim_size(d) for d in range(type_.rank)]


def layout_attr(layout: Layout) -> LayoutAttr:
    """Return the attribute of ``layout`` on the module's mesh."""
    texts = ir.ArrayAttr.get([ir.StringAttr.get(text) for text in layout.texts])
    return LayoutAttr.get(ir.FlatSymbolRefAttr.get(MESH), texts)


def cost_attr(time_s: float, static_bytes: int, transient_bytes: int) -> CostAttr:
    """Return the attribute of a cost; raises :class:`UserError` for sizes beyond 64 bits."""
    largest = max(static_bytes, transient_bytes)
    if largest >= 1 << 63:
        raise UserError(f"an operation needs {largest} bytes on one rank, expected less than 2^63")
    sizes = [
        ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n)
        for n in (static_bytes, transient_bytes)
    ]
    return CostAttr.get(ir.FloatAttr.get(ir.F64Type.get(), time_s), *sizes)


def layout_of(attribute: ir.Attribute) -> Layout:
    """Return the layout that a `#topt.layout` attribute holds."""
    if not isinstance(attribute, LayoutAttr):
        raise UserError(f"expected #topt.layout, got: {attribute}")
    return Layout.parse([ir.StringAttr(text).value for text in ir.ArrayAttr(attribute.placements)])


def strategy_attr(operands: Sequence[Layout], results: Sequence[Layout]) -> StrategyAttr:
    """Return the attribute that fixes the layouts of an op's operands and results."""
    sides = [ir.ArrayAttr.get([layout_attr(layout) for layout in s]) for s in (operands, results)]
    return StrategyAttr.get(*sides)


def layouts_of_strategy(attribute: ir.Attribute) -> tuple[list[Layout], list[Layout]]:
    """Return the layouts of operands and of results that a `#topt.strategy` attribute holds."""
    if not isinstance(attribute, StrategyAttr):
        raise UserError(f"expected #topt.strategy, got: {attribute}")
    sides = (attribute.operands, attribute.results)
    operands, results = ([layout_of(a) for a in ir.ArrayAttr(side)] for side in sides)
    return operands, results


def mesh_of(op: ir.Operation) -> Mesh:
    """Return the mesh of the module that contains ``op`` (its `shard.grid @mesh`)."""
    scope = op
    while scope is not None:
        for child in scope.regions[0].blocks[0] if scope.name == "builtin.module" else ():
            if child.operation.name == "shard.grid":
                return Mesh(tuple(ir.DenseI64ArrayAttr(child.attributes["shape"])))
        scope = scope.parent
    raise UserError("the module has no shard.grid, run search-strategies first")


def set_mesh(module: ir.Module, mesh: Mesh) -> None:
    """Put `shard.grid @mesh` first in ``module``, replacing one that is there."""
    from tensoropt.dialects.mlir import shard

    block = module.body
    for child in list(block):
        if child.operation.name == "shard.grid":
            child.operation.erase()
    with module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(block):
        shard.GridOp(MESH, list(mesh.shape))
