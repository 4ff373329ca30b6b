"""The problem of a small training step, with the costs of its programs.

In a step of few clusters and few layouts per tensor, each tensor is charged as in programs. It is
charged once for all readers in all clusters, by the set of layouts in which it is read
(``shared_uses.py``). Memory is at most the memory of a program: static memory, and the operands and
results of an op. The rest is learnt (``cuts.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.program.constants import equal_constants
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.program import read
from tensoropt.compiler.search.problem.cost_tables import SETS_OF_SMALL, CostTables
from tensoropt.compiler.search.problem.mask_tables import charge_masks
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem
from tensoropt.compiler.search.problem.shared_uses import (
    add_read,
    add_sets_node,
    layout_sets,
    making_costs,
)
from tensoropt.runtime.layout.layout import Layout

__all__ = ["small_step"]

_CHOICES = 14
"""Most clusters with a choice in a small step.

A step of two matrix products has 18, and still learnt after 80 searches of one second each.
"""

_Set = tuple[Layout, ...]
_Picks = NDArray[np.int32]


@dataclass
class _Tensor:
    """A tensor, or state in one part of a step: its producer and readers, with their layouts.

    Layouts are per option of a cluster. A step reshards it ``times`` times.
    """

    value: int
    cluster: int
    made: Sequence[Layout]
    read: dict[int, list[_Set]] = field(default_factory=dict)
    times: int = 1


def small_step(
    tables: CostTables,
    clusters: Sequence[Sequence[int]],
    picks: Sequence[_Picks],
    edges: Callable[[], Sequence[EdgeTable]],
) -> Problem | None:
    """Return the problem of a training step with the clusters as its first nodes.

    A cluster is a list of members, nodes of the graph; its ``picks`` are their strategies [option,
    member]. ``edges`` makes further edges between clusters.

    ``None`` if too many clusters have a choice, or a tensor has too many sets of layouts.
    """
    choosing = sum(len(own) > 1 for own in picks)
    return _Step(tables, clusters, picks).problem(edges()) if choosing <= _CHOICES else None


class _Step:
    def __init__(
        self, tables: CostTables, clusters: Sequence[Sequence[int]], picks: Sequence[_Picks]
    ) -> None:
        self.tables, self.graph = tables, tables.graph
        self.clusters, self.picks = clusters, picks
        self.nodes = [self._node(number) for number in range(len(self.picks))]
        self.edges: list[EdgeTable] = []

    def problem(self, edges: Sequence[EdgeTable]) -> Problem | None:
        self.edges += edges
        for tensor in self._tensors():
            if not self._join(tensor):
                return None
        for reads in self._constants().values():
            if not self._keep(reads):
                return None
        masks = (
            (number, self.tables.masks(member), self.picks[number][:, place])
            for number, place, member in self._members()
        )
        charge_masks(masks, self.nodes, self.edges)
        return Problem(self.nodes, self.edges)

    def _node(self, number: int) -> NodeTable:
        """Return the costs of the members of a cluster, without reshards and constants."""
        time_s, static, transient = (np.zeros(len(self.picks[number])) for _ in range(3))
        for place, member in enumerate(self.clusters[number]):
            node, picked = self.graph.nodes[member], self.picks[number][:, place]
            table = self.tables.node_table(member)
            time_s += table.time_s[picked]
            if not node.constant:
                static += table.static_bytes[picked]
                least = self._own_bytes(member)
                np.maximum(transient, least[picked], out=transient)
        return NodeTable(time_s, static, transient)

    def _own_bytes(self, member: int) -> Floats:
        """Return the bytes that an op reads and writes, except values that may overwrite state."""
        node, table = self.graph.nodes[member], self.tables.node_table(member)
        touched = {value for value in (*node.operands, *node.results) if value is not None}
        replaces = touched & self.graph.storage.replacing
        if not replaces:
            return table.transient_bytes
        options = self.tables.options[member]
        sizes = [self.tables.transient_bytes(node, option, replaces) for option in options]
        return np.array(sizes, dtype=np.float64)

    def _tensors(self) -> list[_Tensor]:
        found: dict[tuple[int, int], _Tensor] = {}
        for number, place, member in self._members():
            node = self.graph.nodes[member]
            for operand, value in read(self.graph, node):
                if value in self.graph.storage.constants or self.graph.values[value].info is None:
                    continue
                is_state = value in self.graph.storage.state
                key = value, node.part if is_state else 0
                tensor = found.setdefault(key, self._make_tensor(value))
                tensor.times = max(tensor.times, self.graph.times(node))
                add_read(tensor.read, number, self._layouts(number, place, operand))
        return list(found.values())

    def _members(self) -> Iterator[tuple[int, int, int]]:
        """Yield each cluster's number, and place and node of its members."""
        for number, cluster in enumerate(self.clusters):
            for place, member in enumerate(cluster):
                yield number, place, member

    def _make_tensor(self, value: int) -> _Tensor:
        held = self.graph.values[value]
        for number, place, member in self._members():
            if member == held.producer:
                options = self.tables.options[member]
                picked = self.picks[number][:, place]
                made = [options[option].results[held.index] for option in picked]
                return _Tensor(value, number, made)
        raise AssertionError("every node that makes a tensor is in a cluster")

    def _layouts(self, number: int, place: int, operand: int) -> list[Layout]:
        options = self.tables.options[self.clusters[number][place]]
        return [options[option].operands[operand] for option in self.picks[number][:, place]]

    def _join(self, tensor: _Tensor) -> bool:
        """Charge the reshards of a tensor; return whether it has few enough sets of layouts."""
        others = {number: own for number, own in tensor.read.items() if number != tensor.cluster}
        inside = tensor.read.get(tensor.cluster, [()] * len(tensor.made))
        sets = layout_sets(others.values(), SETS_OF_SMALL)
        if sets is None:
            return False
        node = add_sets_node(others, sets, [0.0] * len(sets), self.nodes, self.edges)
        known: dict[object, tuple[float, float]] = {}
        costs = np.zeros((len(tensor.made), len(sets), 2))
        for row, (source, own) in enumerate(zip(tensor.made, inside, strict=True)):
            for column, held in enumerate(sets):
                key = source, own, held
                if key not in known:
                    known[key] = self._making(
                        tensor.value, source, (*dict.fromkeys((*own, *held)),)
                    )
                costs[row, column] = known[key]
        times, peaks = tensor.times * costs[:, :, 0], np.ascontiguousarray(costs[:, :, 1])
        self.edges.append(EdgeTable(tensor.cluster, node, times, transient_bytes=peaks))
        return True

    def _making(self, value: int, source: Layout, wanted: _Set) -> tuple[float, float]:
        info = self.graph.values[value].info
        assert info is not None
        time_s, peak = making_costs(self.tables.resharder, info, source, wanted)
        # State is not transient, nor are values that replace it.
        storage = self.graph.storage
        return time_s, 0.0 if value in storage.staying or value in storage.replacing else peak

    def _constants(self) -> dict[tuple[int, int], list[tuple[int, int, list[Layout]]]]:
        """Return the reads of constants at run time, grouped by equal constants."""
        found: dict[tuple[int, int], list[tuple[int, int, list[Layout]]]] = {}
        for number, place, member in self._members():
            node = self.graph.nodes[member]
            for operand, value in () if node.constant else read(self.graph, node):
                held = self.graph.values[value]
                if value in self.graph.storage.constants:
                    key = equal_constants(self.graph)[held.producer], held.index
                    layouts = self._layouts(number, place, operand)
                    found.setdefault(key, []).append((value, number, layouts))
        return found

    def _keep(self, reads: Sequence[tuple[int, int, list[Layout]]]) -> bool:
        """Charge constants in each layout in which they are read."""
        own: dict[int, list[_Set]] = {}
        for _, number, layouts in reads:
            add_read(own, number, layouts)
        sets = layout_sets(own.values(), SETS_OF_SMALL)
        if sets is None:
            return False
        info, mesh = self.graph.values[reads[0][0]].info, self.tables.mesh
        sizes = [sum(tensor_bytes(info, layout, mesh) for layout in held) for held in sets]
        add_sets_node(own, sets, sizes, self.nodes, self.edges)
        return True
