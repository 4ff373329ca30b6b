"""The search's problem for a graph: times and bytes of every assignment on one mesh.

Times add up. Memory is a static sum and a transient maximum. Parameters, and constants that ONNX
Runtime folds from them, are static; the tensors of one op are transient. Equal ops share their
tables, so that the engine solves repeated layers once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import AxisRole, Strategy
from tensoropt.compiler.program.classes import cost_classes
from tensoropt.compiler.program.constants import equal_constants
from tensoropt.compiler.program.costs import NodeCosts, NodeMemo, tensor_bytes
from tensoropt.compiler.program.fills import Mask
from tensoropt.compiler.program.graph import Op, Result
from tensoropt.compiler.search.problem.edge_tables import EdgeTables
from tensoropt.compiler.search.problem.mask_tables import charge_masks, users_of_masks
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem
from tensoropt.compiler.search.problem.shared_uses import LayoutSets, layout_sets
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.support.identity import Same
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "SETS_OF_SMALL",
    "SMALL",
    "Assignment",
    "End",
    "Flags",
    "Memo",
    "MeshTables",
    "SharedEnd",
    "complete",
    "rounds",
]


SMALL = 24
"""Most nodes with a choice in a small problem: its points converge to programs."""
MOST_WAYS = 100
"""Largest joint option count for which a constant's two readers are coupled.

The constant is then charged in the layouts that they read. Small problems have no such limit.
"""
SETS_OF_SMALL = 256
"""Most sets of layouts by which a tensor of a small problem is charged."""

T = TypeVar("T")

Flags = NDArray[np.bool_]

Assignment = NDArray[np.int32]
"""Numbers of options."""

_ConstantReads = tuple[TensorInfo, dict[int, list[tuple[Layout, ...]]], set[tuple[int, int]]]
"""A tensor, its readers and its producers.

Per reader, the layouts in which it is read under each option; producers are (node, result).
"""

_ODD_BYTES = 2.0**-10
"""Bytes for a constant stored in a layout that nothing reads: prefers the other of equal plans."""

_Uses = list[tuple[int, int]]
"""The (node, operand) pairs that read a tensor."""


def rounds(readers: list[T]) -> Iterator[tuple[list[T], list[T]]]:
    """Yield the readers that share each copy of a tensor, and its direct readers.

    The first list is empty for the tensor of the producer; see ``MeshTables.problem``.
    """
    if len(readers) < 2:
        yield [], readers
    elif len(readers) == 2:
        yield readers, readers
    else:
        yield readers, readers[-1:]
        yield readers[:-1], readers[:-1]


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
        self.layouts: dict[object, tuple[Layout, ...]] = {}
        self.node_tables: dict[object, NodeTable] = {}
        self.numbers: dict[Same, dict[tuple[AxisRole, ...], int]] = {}
        self.layout_sets: dict[object, LayoutSets | None] = {}


@dataclass(eq=False)
class MeshTables(NodeCosts):
    """The cost tables of a graph on one mesh of one device description.

    ``memo`` may come from the tables of another graph of the same step on this mesh.
    """

    memo: Memo | None = None

    def __post_init__(self) -> None:
        memo = self.memo = self.memo or self._new_memo()
        super().__post_init__()
        self._edge_tables = EdgeTables(self.resharder)
        self._layouts = memo.layouts
        self._node_tables, self._numbers = memo.node_tables, memo.numbers
        self._layout_sets_known = memo.layout_sets
        # value -> its producer; its first copy or layout set if all readers depend on that
        self.held: dict[int, tuple[End, End | SharedEnd | None]] = {}
        self.second_copies: dict[int, End] = {}
        # (value, source, target, reading node) of each reshard
        self.moved: list[tuple[int, End, End, int]] = []

    def _new_memo(self) -> Memo:
        return Memo(self.mesh, self.device)

    @property
    def learns(self) -> bool:
        """True if the tables charge at most the memory of programs, and learn from programs."""
        return True

    @property
    def is_small(self) -> bool:
        """True if tables learn until points have the memory of programs."""
        return len(self.variables) <= SMALL

    def on_variables(self, masks: Mapping[int, Flags]) -> dict[int, Flags]:
        """Return ``masks`` of graph nodes as masks over the options of the problem's nodes."""
        position = {node: number for number, node in enumerate(self.variables)}
        return {position[node]: mask for node, mask in masks.items()}

    @property
    def leaders(self) -> list[int]:
        """The graph nodes of the first nodes of the problem, in its order."""
        return self.variables

    def decode(self, assignment: Assignment) -> Assignment:
        """Return the option of each of ``variables`` in an assignment of the problem."""
        return assignment[: len(self.variables)]

    @cached_property
    def problem(self) -> Problem:
        """The pairwise factor graph; its node ``i`` is ``variables[i]``, then come the copies.

        A tensor with several uses has a *copy*: a node that chooses an intermediate layout. The
        uses share the reshard to it, and each pays for its own reshard from it. With three uses or
        more, all but the last share a second copy, made from the first: the last use is often the
        end of a residual connection, which reads the producer's layout. In a small problem, a node
        for the set of layouts in which a tensor is read replaces the copies. Linear in the number
        of edges, times the sizes of their distinct tables.
        """
        position = {node: index for index, node in enumerate(self.variables)}
        nodes = [self.node_table(index) for index in self.variables]
        edges: list[EdgeTable] = []
        self.moved.clear()
        self.second_copies.clear()
        for value, uses in self._free_uses().items():
            source = self._source(value, position)
            made, first = source, None
            passed_on = [use for use in uses if self.graph.is_passed_on(value, use[0])]
            for use in passed_on:
                edges.append(self._edge(value, source, self._use(use, position), fixed=True))
            free = [use for use in uses if use not in passed_on]
            sets = self._layout_sets(value, free)
            if sets is not None:
                shared = SharedEnd(len(nodes), sets)
                self.held[value] = source, None if passed_on else shared
                edges += self._sharing(
                    value, source, shared, [self._use(u, position) for u in free]
                )
                nodes.append(self._free_node(len(sets)))
                continue
            for sharing, paying in self._rounds(value, free):
                if sharing:
                    copy = self._copy(value, source, sharing, len(nodes))
                    edges.append(self._edge(value, source, copy))
                    self._note_move(value, source, copy, min(node for node, _ in sharing))
                    nodes.append(self._free_node(len(copy.layouts)))
                    source = copy
                    if first is not None:
                        self.second_copies[value] = copy
                    first = first or copy
                edges += [self._edge(value, source, self._use(u, position)) for u in paying]
                for use in paying:
                    self._note_move(value, source, self._use(use, position), use[0])
            self.held[value] = made, None if passed_on else first
        if self.is_small:
            self._charge_constants_as_read(nodes, edges, position)
            whole = slice(None)
            masks = ((position[index], self.masks(index), whole) for index in self.variables)
            charge_masks(users_of_masks(masks), nodes, edges)
        else:
            self._charge_pairs_as_read(nodes, edges, position)
        return Problem(nodes, [*edges, *self._ties(position), *self._copying(position)])

    def _note_move(self, value: int, source: End, target: End, index: int) -> None:
        held = self.graph.values[value].info
        if held is not None and held.is_movable and value not in self.graph.storage.constants:
            self.moved.append((value, source, target, index))

    def move_bytes(self, value: int, source: End, target: End) -> Floats:
        """Return the bytes [source, target] of a tensor during a reshard."""
        info = self.graph.values[value].info
        assert info is not None
        return self._edge_tables.table(info, source.layouts, target.layouts, constant=False)[1]

    def _charge_constants_as_read(
        self, nodes: list[NodeTable], edges: list[EdgeTable], position: Mapping[int, int]
    ) -> None:
        """Charge constants once per layout in which they are read, and not per stored layout.

        Equal constants count together.
        """
        groups = self._constant_reads()
        sets = [layout_sets(own.values(), SETS_OF_SMALL) for _, own, _ in groups]
        known = [own for own in sets if own is not None]
        if len(known) < len(sets):
            return
        for index in self.variables:
            if self.graph.nodes[index].constant:
                stored = nodes[position[index]]
                nodes[position[index]] = NodeTable(stored.time_s)
        for (info, reads, makers), every in zip(groups, known, strict=True):
            sizes = [self._set_bytes(info, held) for held in every]
            for reader, own in reads.items():
                times = [[0.0 if {*one} <= {*held} else np.inf for one in own] for held in every]
                edges.append(EdgeTable(len(nodes), position[reader], np.array(times)))
            for maker, result in sorted(makers):
                stored_as = [option.results[result] for option in self.options[maker]]
                odd = [[_ODD_BYTES * (x not in held) for x in stored_as] for held in every]
                none = np.zeros((len(every), len(stored_as)))
                edges.append(EdgeTable(len(nodes), position[maker], none, np.array(odd)))
            nodes.append(NodeTable(np.zeros(len(every)), np.array(sizes, dtype=np.float64)))

    def _charge_pairs_as_read(
        self, nodes: list[NodeTable], edges: list[EdgeTable], position: Mapping[int, int]
    ) -> None:
        """Charge constants with two readers once per layout in which they are read.

        This couples the readers: too many joint options would widen all tables between them.
        """
        for info, reads, makers in self._constant_reads():
            every = [wanted for own in reads.values() for wanted in own]
            several = any(len(self.graph.nodes[maker].results) > 1 for maker, _ in makers)
            ways = math.prod(len(own) for own in reads.values())
            if len(reads) != 2 or ways > MOST_WAYS or several or any(len(x) > 1 for x in every):
                continue
            (one, first), (other, then) = reads.items()
            sizes = [[self._set_bytes(info, {*a, *b}) for b in then] for a in first]
            none = np.zeros((len(first), len(then)))
            edges.append(EdgeTable(position[one], position[other], none, np.array(sizes)))
            for maker, result in sorted(makers):
                nodes[position[maker]] = NodeTable(nodes[position[maker]].time_s)
                stored_as = [(option.results[result],) for option in self.options[maker]]
                for reader, own in reads.items():
                    odd = np.array([[_ODD_BYTES * (x != y) for y in own] for x in stored_as])
                    edges.append(
                        EdgeTable(position[maker], position[reader], np.zeros_like(odd), odd)
                    )

    def masks(self, index: int) -> list[set[Mask]]:
        """Return the masks that a node reads under each of its options."""
        node = self.graph.nodes[index]
        return [{fill.mask for fill in self.fills(node, own)} for own in self.options[index]]

    def _set_bytes(self, info: TensorInfo, layouts: Iterable[Layout]) -> float:
        return float(sum(tensor_bytes(info, layout, self.mesh) for layout in layouts))

    def _constant_reads(self) -> list[_ConstantReads]:
        """Return a tensor, its readers and its producers for each class of equal constants."""
        found: dict[tuple[int, int], _ConstantReads] = {}
        for value, node, operand in self.graph.edges():
            held = self.graph.values[value]
            if value not in self.graph.storage.constants or self.graph.nodes[node].constant:
                continue
            assert held.info is not None
            key = equal_constants(self.graph)[held.producer], held.index
            _, reads, makers = found.setdefault(key, (held.info, {}, set()))
            makers.add((held.producer, held.index))
            wanted = self.wanted(node, operand)
            own = reads.get(node, [()] * len(wanted))
            pairs = zip(own, wanted, strict=True)
            reads[node] = [(*before, x) if x not in before else before for before, x in pairs]
        return list(found.values())

    def _layout_sets(self, value: int, uses: _Uses) -> LayoutSets | None:
        """Return the sets of layouts in which a tensor may be read, if it is charged by sets.

        Sets are exact in time, but there can be many. Larger problems learn from the layouts of
        live tensors, about which a set has less information than a copy.
        """
        if len(uses) < 2 or value in self.graph.storage.constants or not self.is_small:
            return None
        wanted = [self.wanted(*use) for use in uses]
        key = tuple(map(Same, wanted))
        if key not in self._layout_sets_known:
            self._layout_sets_known[key] = layout_sets(
                ([(x,) for x in own] for own in wanted), SETS_OF_SMALL
            )
        return self._layout_sets_known[key]

    def _sharing(
        self, value: int, source: End, shared: SharedEnd, uses: Sequence[End]
    ) -> Iterator[EdgeTable]:
        """Yield the edges of the node for the set of layouts in which a tensor is read."""
        info, sets = self.graph.values[value].info, shared.layouts
        assert info is not None
        made = self._edge_tables.making(info, source.layouts, sets)
        yield EdgeTable(source.node, shared.node, made[0], transient_bytes=made[1])
        for use in uses:
            reading = self._edge_tables.reading(sets, use.layouts)
            yield EdgeTable(shared.node, use.node, reading)

    @property
    def has_ample_memory(self) -> bool:
        """True if collectives of programs may start early even if peak memory rises."""
        overlap = self.device.overlap
        return overlap is not None and not overlap.keeps_peak

    @cached_property
    def ample(self) -> Self:
        """The tables of the same plans, with programs in which collectives start early."""
        tables = copy(self)
        tables.options = self.options
        tables.device, tables.evaluator = self.device.with_ample_memory(), None
        tables.forget_edges()
        return tables

    def build(self) -> Problem:
        """Return the problem; the first call builds it and all records about it."""
        return self.problem

    def forget_edges(self) -> None:
        """Free the problem and the tables of its edges; they are made again on the next use."""
        self.__dict__.pop("problem", None)
        self._edge_tables = EdgeTables(self.resharder)

    def _ties(self, position: dict[int, int]) -> Iterator[EdgeTable]:
        """Yield edges that give each result the layout of the cache that it takes over."""
        for index, node in enumerate(self.graph.nodes):
            if isinstance(node, Result) and node.takes_over is not None:
                value = self.graph.nodes[node.takes_over].results[0]
                source, target = self._source(value, position), self._use((index, 0), position)
                yield self._edge(value, source, target, fixed=True)

    def _copying(self, position: dict[int, int]) -> Iterator[EdgeTable]:
        """Yield edges that charge the copy of a cache if a reshard prevents its update in place."""
        for index, node in enumerate(self.graph.nodes):
            if not isinstance(node, Op) or not node.info.in_place:
                continue
            every = [self.apart_s(node, option) for option in self.options[index]]
            for number, (operand, _) in enumerate(every[0] if every else ()):
                value = node.operands[operand]
                assert value is not None
                source, use = self._source(value, position), self._use((index, operand), position)
                moved = [[have != want for want in use.layouts] for have in source.layouts]
                times = np.array([own[number][1] for own in every])
                yield EdgeTable(source.node, use.node, np.array(moved) * times)

    def _rounds(self, value: int, uses: _Uses) -> Iterator[tuple[_Uses, _Uses]]:
        return iter([([], uses)]) if value in self.graph.storage.constants else rounds(uses)

    def _free_uses(self) -> dict[int, _Uses]:
        """Return the (node, operand) pairs that read each value and choose freely."""
        uses: dict[int, _Uses] = {}
        for value, consumer, operand in self.graph.edges():
            uses.setdefault(value, []).append((consumer, operand))
        return uses

    def choices(self, index: int) -> Sequence[Strategy]:
        """Return the strategy of a leader under each option of its node of the problem."""
        return self.options[index]

    def numbers(self, index: int) -> dict[tuple[AxisRole, ...], int]:
        """Return the numbers of an op's options by the roles of the mesh axes."""
        key = Same(self.options[index])
        if key not in self._numbers:
            self._numbers[key] = {o.roles: n for n, o in enumerate(self.options[index])}
        return self._numbers[key]

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

    def _free_node(self, options: int) -> NodeTable:
        """Return the table of a copy, which is charged on its edges."""
        if options not in self._node_tables:
            self._node_tables[options] = NodeTable(np.zeros(options))
        return self._node_tables[options]

    def _source(self, value: int, position: dict[int, int]) -> End:
        held = self.graph.values[value]
        return End(position[held.producer], self._list_made(held.producer, held.index))

    def _use(self, use: tuple[int, int], position: dict[int, int]) -> End:
        return End(position[use[0]], self.wanted(*use))

    def _list_made(self, node: int, result: int) -> tuple[Layout, ...]:
        """Return the layout of a result per option; the same object for the same options."""
        options = self.options[node]
        return self._cache((Same(options), "made", result), (s.results[result] for s in options))

    def wanted(self, node: int, operand: int) -> tuple[Layout, ...]:
        """Return the layout of an operand per option; the same object for the same options."""
        options = self.options[node]
        return self._cache(
            (Same(options), "wanted", operand), (s.operands[operand] for s in options)
        )

    def _cache(self, key: object, layouts: Iterator[Layout]) -> tuple[Layout, ...]:
        if key not in self._layouts:
            self._layouts[key] = tuple(layouts)
        return self._layouts[key]

    def _copy(self, value: int, source: End, uses: _Uses, number: int) -> End:
        """Return the node of the copy: any complete layout that is made or wanted.

        Uses that all require a partial sum gain nothing over reducing it first, as each reduces it
        on its own. Leaving partial layouts out makes the tables much smaller.
        """
        groups = {Same(x): x for x in (source.layouts, *(self.wanted(*use) for use in uses))}
        return End(number, self._cache(("copy", *groups), complete(groups.values())))

    def _edge(self, value: int, source: End, target: End, *, fixed: bool = False) -> EdgeTable:
        held = self.graph.values[value]
        constant = value in self.graph.storage.constants
        assert held.info is not None
        tables = self._edge_tables.table(
            held.info, source.layouts, target.layouts, constant=constant, fixed=fixed
        )
        return EdgeTable(source.node, target.node, tables[0], transient_bytes=tables[1])


def complete(groups: Iterable[tuple[Layout, ...]]) -> Iterator[Layout]:
    """Yield each layout without partial sums once, lazily."""
    distinct = dict.fromkeys(layout for group in groups for layout in group)
    yield from (layout for layout in distinct if not layout.has_partial)
