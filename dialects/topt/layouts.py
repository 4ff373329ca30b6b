"""Conversion of layouts, strategies and the mesh to and from the IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import LayoutAttr, StrategyAttr
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "MESH",
    "layout_attr",
    "layout_of",
    "layouts_of_strategy",
    "mesh_of",
    "set_mesh",
    "strategy_attr",
]

MESH = "mesh"
"""The symbol of the one mesh of a module."""


def layout_attr(layout: Layout) -> LayoutAttr:
    """Return the attribute of ``layout`` on the module's mesh."""
    texts = ir.ArrayAttr.get([ir.StringAttr.get(text) for text in layout.texts])
    attribute: LayoutAttr = LayoutAttr.get(ir.FlatSymbolRefAttr.get(MESH), texts)
    return attribute


def layout_of(attribute: ir.Attribute) -> Layout:
    """Return the layout of a `#topt.layout` attribute."""
    if not isinstance(attribute, LayoutAttr):
        raise UserError(f"expected #topt.layout, got: {attribute}")
    return Layout.parse([ir.StringAttr(text).value for text in ir.ArrayAttr(attribute.placements)])


def strategy_attr(operands: Sequence[Layout], results: Sequence[Layout]) -> StrategyAttr:
    """Return the attribute that fixes the layouts of an op's operands and results."""
    sides = [ir.ArrayAttr.get([layout_attr(layout) for layout in s]) for s in (operands, results)]
    attribute: StrategyAttr = StrategyAttr.get(*sides)
    return attribute


def layouts_of_strategy(attribute: ir.Attribute) -> tuple[list[Layout], list[Layout]]:
    """Return the layouts of operands and of results of a `#topt.strategy` attribute."""
    if not isinstance(attribute, StrategyAttr):
        raise UserError(f"expected #topt.strategy, got: {attribute}")
    sides = (attribute.operands, attribute.results)
    operands, results = ([layout_of(a) for a in ir.ArrayAttr(side)] for side in sides)
    return operands, results


def mesh_of(op: ir.Operation) -> Mesh:
    """Return the mesh of the module that contains ``op`` (its `shard.grid @mesh`)."""
    while op.parent is not None:
        op = op.parent.operation
    grid = next(_grids(op), None)
    if grid is None:
        raise UserError("the module has no shard.grid @mesh, run search-strategies first")
    return Mesh(tuple(ir.DenseI64ArrayAttr(grid.attributes["shape"])))


def set_mesh(module: ir.Module, mesh: Mesh) -> None:
    """Put `shard.grid @mesh` first in ``module``, replacing an existing one."""
    from tensoropt.dialects.mlir import shard

    for grid in list(_grids(module.operation)):
        grid.erase()
    with module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(module.body):
        shard.GridOp(MESH, list(mesh.shape))


def _grids(module: ir.Operation) -> Iterator[ir.Operation]:
    for child in module.regions[0].blocks[0]:
        op = child.operation
        if op.name == "shard.grid" and ir.StringAttr(op.attributes["sym_name"]).value == MESH:
            yield op
