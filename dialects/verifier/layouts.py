"""Check of a layout against the mesh of the module and the type of its tensor."""

from __future__ import annotations

import math
from functools import cached_property

from tensoropt.compiler.layout.layouts import describe_misfit
from tensoropt.compiler.layout.sizes import Open, Size
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.sizes import sizes_of_type
from tensoropt.dialects.topt.dialect import LayoutAttr
from tensoropt.dialects.topt.layouts import MESH, layout_of, mesh_of
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["LayoutChecker"]


class LayoutChecker:
    """Checks the layouts of one module, memoized by attribute and type."""

    def __init__(self, module: ir.Operation) -> None:
        self._module = module
        self._read: dict[ir.Attribute, Layout | str] = {}
        self._found: dict[tuple[ir.Attribute, ir.Type, bool], str | None] = {}

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh of the module, or ``None``."""
        try:
            return mesh_of(self._module)
        except UserError:
            return None

    def problem(
        self, attribute: ir.Attribute, type_: ir.Type, *, local: bool = False
    ) -> str | None:
        """Return an error about the layout of a value of ``type_``, or ``None``.

        The text continues the name of the layout. With ``local``, the type is the type of one
        rank's part, so its sizes need not divide.
        """
        key = attribute, type_, local
        if key not in self._found:
            if attribute not in self._read:
                self._read[attribute] = self._parsed(attribute)
            layout = self._read[attribute]
            if isinstance(layout, str):  # an error that does not depend on the tensor
                return layout
            assert self.mesh is not None
            wrong = _misfit(layout, type_, self.mesh, local)
            self._found[key] = wrong and f"does not fit {type_} on mesh {self.mesh}, {wrong}"
        return self._found[key]

    def _parsed(self, attribute: ir.Attribute) -> Layout | str:
        if not isinstance(attribute, LayoutAttr):
            return f"is of the wrong kind, expected #topt.layout, got: {attribute}"
        if str(attribute.mesh) != f"@{MESH}":
            return f"names an unknown mesh, expected @{MESH}, got: {attribute.mesh}"
        if self.mesh is None:
            return f"names an unknown mesh, expected shard.grid @{MESH} in the module, got: none"
        axes, texts = len(self.mesh.shape), list(ir.ArrayAttr(attribute.placements))
        if len(texts) != axes:
            return (
                "has a wrong number of placements, "
                f"expected {axes} for mesh {self.mesh}, got: {len(texts)}"
            )
        if not all(isinstance(text, ir.StringAttr) for text in texts):
            return f"has a wrong placement, expected strings, got: {attribute.placements}"
        try:
            return layout_of(attribute)
        except UserError as error:
            return f"has a wrong {str(error).replace('placement:', 'placement,', 1)}"


def _misfit(layout: Layout, type_: ir.Type, mesh: Mesh, local: bool) -> str | None:
    if not isinstance(type_, ir.RankedTensorType):
        return None if layout.is_replicated else f"expected R on every axis, got: {layout}"
    element = element_of(str(type_.element_type))
    if layout.has_partial and element is not None and element.name == "STRING":
        return f"expected partial results only of numbers, got: {layout}"
    sizes = sizes_of_type(type_)
    if local:
        sizes = tuple(_whole(size, layout, dim, mesh) for dim, size in enumerate(sizes))
    return describe_misfit(layout, sizes, mesh)


def _whole(part: Size, layout: Layout, dim: int, mesh: Mesh) -> Size:
    pieces, blocks, units = layout.pieces(dim, mesh), layout.blocks(dim), layout.units(dim)
    if isinstance(part, Open):
        return Open(part.mean * pieces, part.end * pieces, part.step * pieces, part.name)
    if part and units:
        like = Division(math.prod(units) * sum(blocks or (1,)), pieces, blocks, units)
        return part * like.size // like.part
    return part and part * pieces
