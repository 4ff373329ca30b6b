"""The problem of a model: its nodes, and copies of the tensors with several uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tensoropt.compiler.program.graph import Op, Result
from tensoropt.compiler.search.problem.constant_reads import ConstantReads
from tensoropt.compiler.search.problem.cost_tables import (
    SETS_OF_SMALL,
    CostTables,
    End,
    SharedEnd,
)
from tensoropt.compiler.search.problem.mask_tables import charge_masks
from tensoropt.compiler.search.problem.problem import EdgeTable, Problem
from tensoropt.compiler.search.problem.shared_uses import LayoutSets, layout_sets

__all__ = ["ModelProblem", "TensorEnds", "rounds"]

_T = TypeVar("_T")

_Uses = list[tuple[int, int]]
"""The (node, operand) pairs that read a tensor."""


@dataclass
class TensorEnds:
    """The nodes of a problem that decide the layouts of tensors.

    ``held`` has the producer of each value, and its first copy or layout set if all readers depend
    on that. ``moved`` has (value, source, target, reading node) of each reshard.
    """

    held: dict[int, tuple[End, End | SharedEnd | None]] = field(default_factory=dict)
    second_copies: dict[int, End] = field(default_factory=dict)
    moved: list[tuple[int, End, End, int]] = field(default_factory=list)


def rounds(readers: list[_T]) -> Iterator[tuple[list[_T], list[_T]]]:
    """Yield the readers that share each copy of a tensor, and its direct readers.

    The first list is empty for the tensor of the producer; see :class:`ModelProblem`.
    """
    if len(readers) < 2:
        yield [], readers
    elif len(readers) == 2:
        yield readers, readers
    else:
        yield readers, readers[-1:]
        yield readers[:-1], readers[:-1]


class ModelProblem:
    """Builds the pairwise factor graph; its node ``i`` is ``variables[i]``, then come the copies.

    A tensor with several uses has a *copy*: a node that chooses an intermediate layout. The uses
    share the reshard to it, and each pays for its own reshard from it. With three uses or more, all
    but the last share a second copy, made from the first: the last use is often the end of a
    residual connection, which reads the producer's layout. In a small problem, a node for the set
    of layouts in which a tensor is read replaces the copies.
    """

    def __init__(self, tables: CostTables) -> None:
        self.tables, self.graph, self.ends = tables, tables.graph, TensorEnds()
        self.position = {node: index for index, node in enumerate(tables.variables)}
        self.nodes = [tables.node_table(index) for index in tables.variables]
        self.edges: list[EdgeTable] = []

    def build(self) -> Problem:
        """Return the problem. Linear in the edges, times the sizes of their distinct tables."""
        uses: dict[int, _Uses] = {}
        for value, consumer, operand in self.graph.edges():
            uses.setdefault(value, []).append((consumer, operand))
        for value, own in uses.items():
            self._connect(value, own)
        constants = ConstantReads(self.tables, self.position)
        if self.tables.is_small:
            constants.charge_all(self.nodes, self.edges)
            whole, tables = slice(None), self.tables
            masks = ((n, tables.masks(index), whole) for n, index in enumerate(tables.variables))
            charge_masks(masks, self.nodes, self.edges)
        else:
            constants.charge_pairs(self.nodes, self.edges)
        return Problem(self.nodes, [*self.edges, *self._ties(), *self._copying()])

    def _connect(self, value: int, uses: _Uses) -> None:
        """Connect the uses of a value to it: a result of its own name, others by copies or sets."""
        source, free = self._source(value), []
        for use in uses:
            if self.graph.is_passed_on(value, use[0]):
                self.edges.append(self.tables.edge(value, source, self._use(use), fixed=True))
            else:
                free.append(use)
        sets = self._layout_sets(value, free)
        if sets is not None:
            shared: End | SharedEnd | None = self._share(value, source, sets, free)
        else:
            shared = self._copy(value, source, free)
        self.ends.held[value] = source, None if len(free) < len(uses) else shared

    def _layout_sets(self, value: int, uses: _Uses) -> LayoutSets | None:
        """Return the sets of layouts in which a tensor may be read, if it is charged by sets.

        Sets are exact in time, but there can be many. Larger problems learn from the layouts of
        live tensors, about which a set has less information than a copy.
        """
        constants = self.graph.storage.constants
        if len(uses) < 2 or value in constants or not self.tables.is_small:
            return None
        wanted = [self.tables.wanted(*use) for use in uses]
        ways = ([(x,) for x in own] for own in wanted)
        return self.tables.known.get(("sets", *wanted), lambda: layout_sets(ways, SETS_OF_SMALL))

    def _share(self, value: int, source: End, sets: LayoutSets, uses: _Uses) -> SharedEnd:
        """Add the node for the set of layouts in which a tensor is read."""
        info, tables = self.graph.values[value].info, self.tables.edge_tables
        assert info is not None
        shared = SharedEnd(len(self.nodes), sets)
        self.nodes.append(self.tables.free_node(len(sets)))
        times, peaks = tables.making(info, source.layouts, sets)
        self.edges.append(EdgeTable(source.node, shared.node, times, transient_bytes=peaks))
        for use in map(self._use, uses):
            reading = tables.reading(sets, use.layouts)
            self.edges.append(EdgeTable(shared.node, use.node, reading))
        return shared

    def _copy(self, value: int, source: End, uses: _Uses) -> End | None:
        """Add the copies of a value, and return the first; a constant has none."""
        constant, first = value in self.graph.storage.constants, None
        for sharing, paying in [([], uses)] if constant else rounds(uses):
            if sharing:
                groups = (source.layouts, *(self.tables.wanted(*use) for use in sharing))
                copy = End(len(self.nodes), self.tables.copies(groups))
                self.edges.append(self.tables.edge(value, source, copy))
                self._note_move(value, source, copy, min(node for node, _ in sharing))
                self.nodes.append(self.tables.free_node(len(copy.layouts)))
                source = copy
                if first is not None:
                    self.ends.second_copies[value] = copy
                first = first or copy
            for use in paying:
                target = self._use(use)
                self.edges.append(self.tables.edge(value, source, target))
                self._note_move(value, source, target, use[0])
        return first

    def _note_move(self, value: int, source: End, target: End, index: int) -> None:
        info = self.graph.values[value].info
        if info is not None and info.is_movable and value not in self.graph.storage.constants:
            self.ends.moved.append((value, source, target, index))

    def _ties(self) -> Iterator[EdgeTable]:
        """Yield edges that give each result the layout of the cache that it takes over."""
        for index, node in enumerate(self.graph.nodes):
            if isinstance(node, Result) and node.takes_over is not None:
                (value,) = self.graph.nodes[node.takes_over].results
                source, target = self._source(value), self._use((index, 0))
                yield self.tables.edge(value, source, target, fixed=True)

    def _copying(self) -> Iterator[EdgeTable]:
        """Yield edges that charge the copy of a cache if a reshard prevents its update in place."""
        for index, node in enumerate(self.graph.nodes):
            if not isinstance(node, Op) or not node.info.in_place:
                continue
            every = [self.tables.apart_s(node, option) for option in self.tables.options[index]]
            for number, (operand, _) in enumerate(every[0] if every else ()):
                value = node.operands[operand]
                assert value is not None
                source, use = self._source(value), self._use((index, operand))
                moved = [[have != want for want in use.layouts] for have in source.layouts]
                times = np.array([own[number][1] for own in every])
                yield EdgeTable(source.node, use.node, np.array(moved) * times)

    def _source(self, value: int) -> End:
        held = self.graph.values[value]
        return End(self.position[held.producer], self.tables.list_made(held.producer, held.index))

    def _use(self, use: tuple[int, int]) -> End:
        return End(self.position[use[0]], self.tables.wanted(*use))
