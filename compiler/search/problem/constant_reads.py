"""Charges of constants for the layouts in which they are read, and not for their stored one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tensoropt.compiler.program.constants import equal_constants
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.search.problem.cost_tables import SETS_OF_SMALL, CostTables
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable
from tensoropt.compiler.search.problem.shared_uses import add_read, add_sets_node, layout_sets
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import Layout

__all__ = ["ConstantReads"]

MOST_WAYS = 100
"""Largest joint option count for which a constant's two readers are coupled.

The constant is then charged in the layouts that they read. Small problems have no such limit.
"""
_ODD_BYTES = 2.0**-10
"""Bytes for a constant stored in a layout that nothing reads: prefers the other of equal plans."""


@dataclass
class _Constant:
    """A class of equal constants.

    Per reader, a node of the problem, the layouts in which it is read under each option; makers are
    (node of the graph, result).
    """

    info: TensorInfo
    reads: dict[int, list[tuple[Layout, ...]]] = field(default_factory=dict)
    makers: set[tuple[int, int]] = field(default_factory=set)


class ConstantReads:
    """The constants of a model that are read at run time, by classes of equal constants.

    ``position`` has the node of the problem of each node of the graph.
    """

    def __init__(self, tables: CostTables, position: Mapping[int, int]) -> None:
        self.tables, self.graph, self.position = tables, tables.graph, position
        found: dict[tuple[int, int], _Constant] = {}
        for value, node, operand in self.graph.edges():
            held = self.graph.values[value]
            if value not in self.graph.storage.constants or self.graph.nodes[node].constant:
                continue
            assert held.info is not None
            key = equal_constants(self.graph)[held.producer], held.index
            own = found.setdefault(key, _Constant(held.info))
            own.makers.add((held.producer, held.index))
            add_read(own.reads, position[node], tables.wanted(node, operand))
        self.constants = list(found.values())

    def charge_all(self, nodes: list[NodeTable], edges: list[EdgeTable]) -> None:
        """Charge constants once per set of layouts in which they are read, unless too many sets."""
        sets = [layout_sets(own.reads.values(), SETS_OF_SMALL) for own in self.constants]
        known = [own for own in sets if own is not None]
        if len(known) < len(sets):
            return
        for index in self.tables.variables:
            if self.graph.nodes[index].constant:
                place = self.position[index]
                nodes[place] = NodeTable(nodes[place].time_s)
        for one, every in zip(self.constants, known, strict=True):
            sizes = [self._bytes(one, held) for held in every]
            node = add_sets_node(one.reads, every, sizes, nodes, edges)
            for maker, result in sorted(one.makers):
                stored_as = self.tables.list_made(maker, result)
                odd = [[_ODD_BYTES * (x not in held) for x in stored_as] for held in every]
                none = np.zeros((len(every), len(stored_as)))
                edges.append(EdgeTable(node, self.position[maker], none, np.array(odd)))

    def charge_pairs(self, nodes: list[NodeTable], edges: list[EdgeTable]) -> None:
        """Charge constants with two readers once per layout in which they are read.

        This couples the readers: too many joint options would widen all tables between them.
        """
        for one in self.constants:
            every = [wanted for own in one.reads.values() for wanted in own]
            several = any(len(self.graph.nodes[maker].results) > 1 for maker, _ in one.makers)
            ways = math.prod(len(own) for own in one.reads.values())
            if len(one.reads) != 2 or ways > MOST_WAYS or several or any(len(x) > 1 for x in every):
                continue
            (first, here), (last, there) = one.reads.items()
            sizes = [[self._bytes(one, {*a, *b}) for b in there] for a in here]
            none = np.zeros((len(here), len(there)))
            edges.append(EdgeTable(first, last, none, np.array(sizes)))
            for maker, result in sorted(one.makers):
                place = self.position[maker]
                nodes[place] = NodeTable(nodes[place].time_s)
                for reader, own in one.reads.items():
                    stored_as = self.tables.list_made(maker, result)
                    odd = np.array([[_ODD_BYTES * ((x,) != y) for y in own] for x in stored_as])
                    edges.append(EdgeTable(place, reader, np.zeros_like(odd), odd))

    def _bytes(self, one: _Constant, layouts: Iterable[Layout]) -> float:
        return float(sum(tensor_bytes(one.info, x, self.tables.mesh) for x in layouts))
