"""`search-strategies`: choose a strategy for every op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.mesh import Mesh, factorisations, parse_mesh
from tensoropt.compiler.search.problem.graph import Graph, Node
from tensoropt.compiler.search.problem.options import stored
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, set_mesh
from tensoropt.passes.base import Pass

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierPoint
    from tensoropt.compiler.search.problem.tables import MeshTables
    from tensoropt.compiler.sharding.rule.rule import Strategy

__all__ = ["SearchStrategiesPass", "annotate"]

_ADDRESSABLE = 1 << 63
"""The sizes of tensors are 64-bit numbers."""


@dataclass(frozen=True)
class SearchStrategiesPass(Pass):
    """Searches layouts on a mesh and writes the fastest, leanest or knee plan into the module.

    Adds `shard.grid @mesh`, `topt.strategy` to every op, and `topt.layout` to every argument and
    result of `@main`. Refuses a module that holds anything but imported `onnx` operations.
    """

    name: ClassVar[str] = "search-strategies"
    summary: ClassVar[str] = "Search a layout for every tensor and annotate every op with it."

    devices: int = 2
    mesh: str | None = None
    device: str = "cpu"
    search: str = "ft"
    seed: int = 0
    epsilon: float = 0.0
    pick: str = "time"

    def run(self, module: ir.Module) -> None:
        from tensoropt.compiler.cost.device import load_device
        from tensoropt.compiler.search.frontier.points import pick_point
        from tensoropt.compiler.search.frontier.search import SearchOptions, search_frontier

        meshes = [parse_mesh(self.mesh)] if self.mesh else list(factorisations(self.devices))
        options = SearchOptions(self.search, self.seed, self.epsilon)
        result = search_frontier(module, meshes, load_device(self.device), options)
        annotate(module, pick_point(result.points, self.pick), self.device)


def annotate(module: ir.Module, point: FrontierPoint, device: str) -> None:
    """Write the mesh and the strategies of ``point`` into the ``module`` they were searched for.

    ``device`` names the device description of the search, so that later passes cost with the same.
    """
    graph = read_graph(module)
    mesh = Mesh(point.mesh)
    with module.context, ir.Location.unknown():
        set_mesh(module, mesh)
        keys.DEVICE.set(module.operation.attributes, device)
        for index, node in enumerate(graph.nodes):
            if node.kind == "op":
                _annotate_op(node, point.strategies[index], point.tables)
        _annotate_signature(module, graph, point.strategies)


def _annotate_op(node: Node, chosen: Strategy, tables: MeshTables) -> None:
    assert node.op is not None
    needed = max(tables.static_bytes(node, chosen), tables.transient_bytes(node, chosen))
    if needed >= _ADDRESSABLE:
        raise UserError(f"an operation needs {needed} bytes on one rank, expected less than 2^63")
    keys.STRATEGY.set(node.op.attributes, (list(chosen.operands), list(chosen.results)))


def _annotate_signature(
    module: ir.Module, graph: Graph, strategies: Mapping[int, Strategy]
) -> None:
    function = onnx.function(module)
    for key, kind in (("arg_attrs", "argument"), ("res_attrs", "result")):
        layouts = [
            _layout(graph, index, strategies)
            for index, node in enumerate(graph.nodes)
            if node.kind == kind
        ]
        if layouts:
            held = [dict(_items(d)) for d in onnx.carried(function, key)]
            for attributes, layout in zip(held, layouts, strict=True):
                attributes |= keys.LAYOUT.item(layout)
            function.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in held])


def _items(attributes: ir.DictAttr) -> list[tuple[str, ir.Attribute]]:
    return [(item.name, item.attr) for item in attributes]


def _layout(graph: Graph, index: int, strategies: Mapping[int, Strategy]) -> Layout:
    """Return the layout of an argument or result; a tied parameter lies as its use wants it."""
    node = graph.nodes[index]
    if node.tied:
        consumer, operand = graph.values[node.results[0]].uses[0]
        return stored(strategies[consumer].operands[operand])
    chosen = strategies[index]
    side = chosen.results if node.kind == "argument" else chosen.operands
    if not side:
        raise UserError(f"{node.name}: has no layout, expected one from the search")
    return side[0]
