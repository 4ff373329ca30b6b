"""`check-strategies`: check edited strategies against the rules, and update their cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.planning.request import PINNED
from tensoropt.compiler.program.graph import Argument, Node, Op, Result
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.frontier.pinned import Layouts, chosen_frontier, number_of
from tensoropt.compiler.search.frontier.search import as_step
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import Alternative, recompute_of
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RESHARD, mesh_of
from tensoropt.dialects.topt.keys import DEVICE, SEARCH, TRAINING
from tensoropt.passes.base import Pass, PassError
from tensoropt.passes.points import fingerprint
from tensoropt.passes.search_strategies import annotate, record
from tensoropt.passes.strategies import device_of, signature_layouts, strategy_of
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["CheckStrategiesPass", "read_choice"]


@dataclass(frozen=True)
class CheckStrategiesPass(Pass):
    """Checks strategies that were edited after the search, and computes their cost.

    The module then has one `topt.point`, with the cost of its own strategies, and private
    parameters get the layout that their use reads. Changes nothing if the strategies still match
    the fingerprint of the search. Refuses an op without `topt.strategy`, a strategy that the rule
    of the op does not offer, and a layout that an argument or result cannot have.
    """

    name: ClassVar[str] = "check-strategies"
    summary: ClassVar[str] = "Check edited strategies and recompute their cost."

    def run(self, module: ir.Module) -> None:
        attributes = module.operation.attributes
        search = SEARCH.get(attributes)
        if search is None or search.get("strategies") != fingerprint(module):
            _Edited(module).settle()


def read_choice(module: ir.Module, mesh: Mesh, device: Device) -> tuple[MeshTables, list[int]]:
    """Return the tables of a module with strategies, and the option of each of its variables.

    Reshards between ops are ignored. Raises the same PassErrors as the pass.
    """
    return _Edited(module).choice(mesh, device)


class _Edited:
    """A module with strategies that may have been edited."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        # Operations are read from a copy without the reshards between them.
        self.bare = copy_of(module)
        self.main = onnx.function(self.bare)
        ops = (view.operation for view in self.main.regions[0].blocks[0])
        reshards = [op for op in ops if op.name == RESHARD]
        for op in reshards:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        self.has_reshards = bool(reshards)
        self.arguments = iter(signature_layouts(self.main, "arg_attrs"))
        self.results = iter(signature_layouts(self.main, "res_attrs"))

    def settle(self) -> None:
        """Check the strategies and write their cost into the module."""
        device = DEVICE.get(self.module.operation.attributes)
        if device is None:
            text = "has no topt.device in its module, expected search-strategies to be run first"
            raise Pass.fail(self.main, text)
        tables, choice = self.choice(mesh_of(self.module.operation), device_of(self.module))
        result = chosen_frontier(tables, choice)
        if TRAINING.on(self.module.operation.attributes):
            batches = tables.graph.micro_batches
            result = as_step(result, Alternative(recompute_of(self.bare), batches))
        if not self.has_reshards:
            annotate(self.module, result.points[0], device)
        record(self.module, {"name": PINNED}, result.points, 0)

    def choice(self, mesh: Mesh, device: Device) -> tuple[MeshTables, list[int]]:
        """Return the tables of the module, and the option of each variable."""
        graph = read_graph(self.bare)
        wanted = [self._wanted(node) for node in graph.nodes]
        tables = MeshTables(graph, mesh, device)
        return tables, [self._number(tables, index, wanted[index]) for index in tables.variables]

    def _wanted(self, node: Node) -> Layouts:
        """Return the layouts of a node in the module; arguments and results must come in order."""
        if isinstance(node, Argument):
            return (), (next(self.arguments),)
        if isinstance(node, Result):
            return (next(self.results),), ()
        assert node.source is not None
        operands, results = strategy_of(node.source)
        return tuple(operands), tuple(results)

    def _number(self, tables: MeshTables, index: int, wanted: Layouts) -> int:
        node = tables.graph.nodes[index]
        try:
            return number_of(tables, index, wanted)
        except UserError as error:
            place = (node.source if isinstance(node, Op) else None) or self.main
            text = str(error).removeprefix(f"node '{node.name}': ")  # the location has the name
            raise PassError(f"'{place.name}' op {text}", place.location) from None
