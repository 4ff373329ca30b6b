"""`check-strategies`: strategies that a person edited are offered by the rules, and cost anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.search.frontier.pinned import Layouts, chosen_frontier, number_of
from tensoropt.compiler.search.frontier.request import PINNED
from tensoropt.compiler.search.frontier.steps import as_step
from tensoropt.compiler.search.problem.graph import Node
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import alternatives
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RESHARD, mesh_of
from tensoropt.dialects.topt.keys import DEVICE, SEARCH, TRAINING
from tensoropt.passes.base import Pass, PassError
from tensoropt.passes.points import fingerprint
from tensoropt.passes.search_strategies import annotate, record
from tensoropt.passes.strategies import device_of, signature_layouts, strategy_of

__all__ = ["CheckStrategiesPass", "settled"]


@dataclass(frozen=True)
class CheckStrategiesPass(Pass):
    """Checks and costs strategies that are not those of the search that the module names.

    The module then has one `topt.point`, with the figures of its own strategies, and a parameter
    with one use lies as that use wants it. Changes nothing where the strategies are those that were
    found. Refuses an op without `topt.strategy`, a strategy that the rule of the op does not offer,
    and a layout that an argument or result cannot have.
    """

    name: ClassVar[str] = "check-strategies"
    summary: ClassVar[str] = "Check strategies that were edited, and cost them anew."

    def run(self, module: ir.Module) -> None:
        attributes = module.operation.attributes
        said = SEARCH.get(attributes)
        if said is None or said.get("strategies") != fingerprint(module):
            _Edited(module).settle()


def settled(module: ir.Module, mesh: Mesh, device: Device) -> tuple[MeshTables, list[int]]:
    """Return the tables of a module with strategies, and the number of each node's among them.

    Reshards between its ops do not count. Raises PassError as the pass does.
    """
    return _Edited(module).choice(mesh, device)


class _Edited:
    """A module whose strategies somebody wrote."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        # Operations are looked up in a copy, where there are no reshards between them.
        self.bare = copy_of(module)
        _remove_reshards(self.bare)
        self.main = onnx.function(self.bare)
        self.ends = {
            "argument": iter(signature_layouts(self.main, "arg_attrs")),
            "result": iter(signature_layouts(self.main, "res_attrs")),
        }

    def settle(self) -> None:
        """Check the strategies, and write what they cost."""
        device = DEVICE.get(self.module.operation.attributes)
        if device is None:
            text = "has no topt.device beside it, expected search-strategies to be run first"
            raise Pass.fail(self.main, text)
        tables, choice = self.choice(mesh_of(self.module.operation), device_of(self.module))
        result = chosen_frontier(tables, choice)
        if TRAINING.on(self.module.operation.attributes):
            (way,) = alternatives(self.bare)
            result = as_step(result, way)
        if not _has_reshards(self.module):
            annotate(self.module, result.points[0], device)
        record(self.module, {"name": PINNED}, result.points, 0)

    def choice(self, mesh: Mesh, device: Device) -> tuple[MeshTables, list[int]]:
        """Return the tables of the module, and the number of the option that each node has."""
        graph = read_graph(self.bare)
        wanted = [self._wanted(node) for node in graph.nodes]
        tables = MeshTables(graph, mesh, device)
        return tables, [self._number(tables, index, wanted[index]) for index in tables.variables]

    def _wanted(self, node: Node) -> Layouts:
        """Return what the module says of a node; arguments and results are asked for in order."""
        if node.kind == "op" and node.op is not None:
            operands, results = strategy_of(node.op)
            return tuple(operands), tuple(results)
        layout = next(self.ends[node.kind])
        return ((), (layout,)) if node.kind == "argument" else ((layout,), ())

    def _number(self, tables: MeshTables, index: int, wanted: Layouts) -> int:
        node = tables.graph.nodes[index]
        try:
            return number_of(tables, index, wanted)
        except UserError as error:
            place = (node.op if node.kind == "op" else None) or self.main
            said = str(error).removeprefix(f"node '{node.name}': ")  # which the place says
            raise PassError(f"'{place.name}' op {said}", place.location) from None


def _remove_reshards(module: ir.Module) -> None:
    for op in list(onnx.function(module).regions[0].blocks[0]):
        if op.operation.name == RESHARD:
            op.operation.results[0].replace_all_uses_with(op.operation.operands[0])
            op.operation.erase()


def _has_reshards(module: ir.Module) -> bool:
    block = onnx.function(module).regions[0].blocks[0]
    return any(op.operation.name == RESHARD for op in block)
