"""Tables of the nodes and edges of a graph on one mesh, made once for all equal ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.program.classes import cost_classes
from tensoropt.compiler.program.costs import NodeCosts, NodeMemo
from tensoropt.compiler.program.fills import Mask
from tensoropt.compiler.search.problem.edge_tables import EdgeTables
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable
from tensoropt.compiler.search.problem.shared_uses import LayoutSets
from tensoropt.compiler.support.identity import Known
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "SETS_OF_SMALL",
    "SMALL",
    "Assignment",
    "CostTables",
    "End",
    "Flags",
    "Memo",
    "SharedEnd",
]

SMALL = 24
"""Most nodes with a choice in a small problem: its points converge to programs."""
SETS_OF_SMALL = 256
"""Most sets of layouts by which a tensor of a small problem is charged."""

Flags = NDArray[np.bool_]

Assignment = NDArray[np.int32]
"""Numbers of options."""


@dataclass(frozen=True)
class End:
    """One end of an edge: a node of the problem, and a layout of the tensor per option."""

    node: int
    layouts: tuple[Layout, ...]


@dataclass(frozen=True)
class SharedEnd:
    """A node of the problem, and per option the layouts in which a tensor is read."""

    node: int
    layouts: LayoutSets


class Memo(NodeMemo):
    """Options and tables on one mesh, computed once for all graphs that are derived from a step.

    Equal nodes of these graphs share their infos and rules.
    """

    def __init__(self, mesh: Mesh, device: Device) -> None:
        super().__init__(mesh, device)
        self.node_tables: dict[object, NodeTable] = {}
        self.known = Known()
        self.edges = Known()  # of training steps


@dataclass(eq=False)
class CostTables(NodeCosts):
    """The tables of the options of nodes, and of the reshards between them.

    ``memo`` may come from the tables of another graph of the same step on this mesh.
    """

    memo: Memo | None = None

    def __post_init__(self) -> None:
        memo = self.memo = self.memo or Memo(self.mesh, self.device)
        super().__post_init__()
        self.edge_tables = EdgeTables(self.resharder)
        self.known, self.step_edges, self._node_tables = memo.known, memo.edges, memo.node_tables

    @property
    def has_ample_memory(self) -> bool:
        """True if collectives of programs may start early even if peak memory rises."""
        overlap = self.device.overlap
        return overlap is not None and not overlap.keeps_peak

    @property
    def is_small(self) -> bool:
        """True if tables learn until points have the memory of programs."""
        return len(self.variables) <= SMALL

    def forget_edges(self) -> None:
        """Free the tables of edges; they are made again on the next use."""
        self.edge_tables = EdgeTables(self.resharder)
        self.step_edges.forget()

    def numbers(self, index: int) -> dict[tuple[AxisRole, ...], int]:
        """Return the numbers of an op's options by the roles of the mesh axes."""
        options = self.options[index]
        key = (options, "numbers")
        return self.known.get(key, lambda: {own.roles: n for n, own in enumerate(options)})

    def masks(self, index: int) -> list[set[Mask]]:
        """Return the masks that a node reads under each of its options."""
        node = self.graph.nodes[index]
        return [{fill.mask for fill in self.fills(node, own)} for own in self.options[index]]

    def node_table(self, index: int) -> NodeTable:
        """Return the costs of a node's options; the same table for nodes of equal roles."""
        node = self.graph.nodes[index]
        key = cost_classes(self.graph)[index], self.is_fused(node)
        if key not in self._node_tables:
            options, times = self.options[index], self.graph.times(node)
            once_s = [self.op_time_s(node, s) + self.inner_time_s(node, s) for s in options]
            self._node_tables[key] = NodeTable(
                times * np.array(once_s),
                np.array([self.static_bytes(node, s) for s in options], dtype=np.float64),
                np.array([self.transient_bytes(node, s) for s in options], dtype=np.float64),
            )
        return self._node_tables[key]

    def free_node(self, options: int) -> NodeTable:
        """Return the table of a copy, which is charged on its edges."""
        if options not in self._node_tables:
            self._node_tables[options] = NodeTable(np.zeros(options))
        return self._node_tables[options]

    def edge(self, value: int, source: End, target: End, *, fixed: bool = False) -> EdgeTable:
        """Return the costs of a value's reshard; a ``fixed`` value keeps its layout."""
        info, constant = self.graph.values[value].info, value in self.graph.storage.constants
        assert info is not None
        ends = source.layouts, target.layouts
        tables = self.edge_tables.table(info, *ends, constant=constant, fixed=fixed)
        return EdgeTable(source.node, target.node, tables[0], transient_bytes=tables[1])

    def move_bytes(self, value: int, source: End, target: End) -> Floats:
        """Return the bytes [source, target] of a tensor during a reshard."""
        info = self.graph.values[value].info
        assert info is not None
        return self.edge_tables.table(info, source.layouts, target.layouts, constant=False)[1]

    def list_made(self, node: int, result: int) -> tuple[Layout, ...]:
        """Return the layout of a result per option; the same object for the same options."""
        options = self.options[node]
        key = (options, "made", result)
        return self.known.get(key, lambda: tuple(own.results[result] for own in options))

    def wanted(self, node: int, operand: int) -> tuple[Layout, ...]:
        """Return the layout of an operand per option; the same object for the same options."""
        options = self.options[node]
        key = (options, "wanted", operand)
        return self.known.get(key, lambda: tuple(own.operands[operand] for own in options))

    def copies(self, groups: Iterable[tuple[Layout, ...]]) -> tuple[Layout, ...]:
        """Return the layouts of a copy: any complete layout of ``groups``, that is made or wanted.

        Uses that all require a partial sum gain nothing over reducing it first, as each reduces it
        on its own. Leaving partial layouts out makes the tables much smaller.
        """
        distinct = {id(group): group for group in groups}.values()

        def make() -> tuple[Layout, ...]:
            layouts = dict.fromkeys(layout for group in distinct for layout in group)
            return tuple(layout for layout in layouts if not layout.has_partial)

        return self.known.get(("copy", *distinct), make)
