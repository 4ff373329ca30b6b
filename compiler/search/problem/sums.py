"""Peak-memory lower bounds: an op or reshard plus at most two other live tensors.

A part that depends on several nodes of the problem gets a node of its own, which all sums share;
its options are the states of the part. A sum of two nodes is then a table between them. A sum of
more nodes is another node, with the joint states of all parts as options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

import numpy as np

from tensoropt.compiler.search.problem.cost_tables import Flags
from tensoropt.compiler.search.problem.live_sizes import Part, Shape, classes
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, TablePoint
from tensoropt.compiler.search.problem.waiting import Moment, Waits
from tensoropt.compiler.support.identity import Same

__all__ = ["Sums"]

MOST_PARTS = 2
"""Most parts of a sum in addition to its op or reshard. Ablation: pairs-of-parts."""
MOST_STATES = 400
"""Most options of the node of a sum."""
MOST_CELLS = 40_000
"""Most joint choices of the nodes of a sum."""
MOST_ALIKE = 6
"""Most sums of one kind per moment. Ablation: kinds-of-sums."""


@dataclass(frozen=True)
class _Sum:
    """The kinds of a moment and of other live tensors, as numbers: their bytes add up."""

    own: int
    moved: int | None
    waiting: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Table:
    """The tables of a sum.

    ``size_bytes`` has transient bytes [state, option of the moment's node]; ``none`` are zeros of
    the same shape. ``allowed`` has seconds [option, state] per other node: 0 for an allowed state,
    else infinite. If there is only one other node, its options are the states, and ``allowed`` is
    empty.
    """

    size_bytes: Floats
    none: Floats
    allowed: tuple[Floats, ...] = ()


@dataclass(frozen=True, eq=False)
class _Held:
    """A part of several nodes as a node of its own.

    ``ties`` has seconds [option, state] per node of the part; ``shape`` has the bytes of the
    states.
    """

    node: NodeTable
    ties: tuple[Floats, ...]
    shape: Shape


@dataclass
class _Added:
    """The tables of a problem with added sums, and the parts that have nodes there."""

    nodes: list[NodeTable]
    edges: list[EdgeTable]
    held: dict[object, Part] = field(default_factory=dict)

    def add(self, table: NodeTable, ends: Iterable[int], ties: Iterable[Floats]) -> int:
        """Add a node that is tied to others; return its number."""
        here = len(self.nodes)
        self.nodes.append(table)
        self.edges += [EdgeTable(end, here, tie) for end, tie in zip(ends, ties, strict=True)]
        return here


class Sums:
    """The sums learnt on one mesh."""

    def __init__(self, waits: Waits) -> None:
        self.waits = waits
        self._known: dict[_Sum, None] = {}
        self._tables: dict[object, _Table] = {}
        self._raised: dict[object, NodeTable] = {}
        self._held: dict[Same, _Held] = {}
        self._kinds: dict[Same, int] = {}
        self._most = 1 if waits.tables.is_small else MOST_PARTS

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, point: TablePoint, index: int, before: int, *, runs: bool) -> bool:
        """Learn a sum above the transient bytes of ``point``; return whether it is new.

        The peak is at node ``index``, which ``runs`` or has an operand resharded, or right after
        the node that ran ``before``.
        """
        for moment in self._moments_at(index, before, runs=runs):
            for lesson in self._lessons(moment, point):
                if lesson not in self._known:
                    self._known[lesson] = None
                    return True
        return False

    def _moments_at(self, index: int, before: int, *, runs: bool) -> Sequence[Moment]:
        at = self.waits.moments.get(index) if runs else None
        found = [] if at is None else [at]
        if self._most == 1:
            return found
        if not runs:
            found += [*self.waits.cuts.get(before, ()), *self.waits.moves.get(index, ())]
        return found

    def _lessons(self, moment: Moment, point: TablePoint) -> Iterator[_Sum]:
        """Yield sums of the largest parts, of few parts first."""
        chosen = point.assignment
        total = float(moment.size_bytes[chosen[moment.node]]) + moment.least_bytes
        if moment.moved is not None:
            total += moment.moved.bytes(chosen, moment.node)
        found: dict[int, tuple[float, Part]] = {}  # by value
        for part in moment.waiting:
            more = part.bytes(chosen, moment.node) - moment.least[part.value]
            if more > found.get(part.value, (0.0, part))[0]:
                found[part.value] = more, part
        largest = sorted(found.values(), key=lambda one: -one[0])[: self._most]
        for count in range(len(largest) + 1):
            parts = [part for _, part in largest[:count]]
            total += largest[count - 1][0] if count else 0.0
            if total > point.transient and _is_small(moment, parts):
                yield self._sum(moment, parts)

    def add_to(self, nodes: list[NodeTable], edges: list[EdgeTable]) -> None:
        """Add the tables of all learnt sums to the tables of a problem."""
        problem = _Added(nodes, edges)
        for moment in self._moments():
            for lesson in self._known:
                if (lesson.own, lesson.moved) == self._kind(moment):
                    for parts in islice(self._match_parts(moment, lesson), MOST_ALIKE):
                        self._add(moment, parts, problem)

    def _moments(self) -> Iterable[Moment]:
        yield from self.waits.moments.values()
        if any(lesson.moved is not None for lesson in self._known):
            for moments in (*self.waits.moves.values(), *self.waits.cuts.values()):
                yield from moments

    def _add(self, moment: Moment, parts: Sequence[Part], problem: _Added) -> None:
        every = [self._as_one_node(part, problem) for part in _every(moment, parts)]
        ends = list(dict.fromkeys(node for part in every for node in part.nodes))
        rest = moment.least_bytes - sum(moment.least[part.value] for part in parts)
        places = tuple(ends.index(node) for part in every for node in part.nodes)
        key = (Same(moment.size_bytes), rest, places, *(Same(part.shape) for part in every))
        if key not in self._tables:
            shapes = [part.shape for part in every]
            self._tables[key] = _table(shapes, places, len(ends), moment.size_bytes + rest)
        table = self._tables[key]
        if not ends:
            own = problem.nodes[moment.node]
            problem.nodes[moment.node] = self._at_least(own, table.size_bytes)
            return
        here = ends[0]
        if table.allowed:
            states = NodeTable(np.zeros(len(table.size_bytes)))
            here = problem.add(states, ends, table.allowed)
        problem.edges.append(
            EdgeTable(here, moment.node, table.none, transient_bytes=table.size_bytes)
        )

    def _as_one_node(self, part: Part, problem: _Added) -> Part:
        """Return a part that depends on one node; several nodes get a node for their states."""
        if len(part.nodes) == 1:
            return part
        shape = Same(part.shape)
        key = shape, part.nodes
        if key not in problem.held:
            if shape not in self._held:
                self._held[shape] = _make_held(part.shape)
            held = self._held[shape]
            here = problem.add(held.node, part.nodes, held.ties)
            problem.held[key] = Part(part.value, (here,), held.shape)
        return problem.held[key]

    def _at_least(self, node: NodeTable, size_bytes: Floats) -> NodeTable:
        """Return the table of a node with the bytes that are live for any choice of the others."""
        key = Same(node), Same(size_bytes)
        if key not in self._raised:
            most = np.maximum(node.transient_bytes, size_bytes[0])
            self._raised[key] = NodeTable(node.time_s, node.static_bytes, most)
        return self._raised[key]

    def _number(self, shared: object) -> int:
        """Return the number of an object that equal moments or parts share."""
        return self._kinds.setdefault(Same(shared), len(self._kinds))

    def _kind(self, moment: Moment) -> tuple[int, int | None]:
        moved = None if moment.moved is None else self._number(moment.moved.shape)
        return self._number(moment.size_bytes), moved

    def _sum(self, moment: Moment, parts: Sequence[Part]) -> _Sum:
        kinds = sorted(self._number(part.shape) for part in parts)
        return _Sum(*self._kind(moment), tuple(kinds))

    def _match_parts(self, moment: Moment, lesson: _Sum) -> Iterator[tuple[Part, ...]]:
        """Yield the parts of a moment that match the kinds of a lesson, each of another value."""
        seen = set()
        kinds = [
            [part for part in moment.waiting if self._number(part.shape) == kind]
            for kind in lesson.waiting
        ]
        for parts in product(*kinds):
            one = frozenset(parts)
            if one not in seen and len({part.value for part in parts}) == len(parts):
                seen.add(one)
                yield parts


def _every(moment: Moment, parts: Sequence[Part]) -> list[Part]:
    return [*parts] if moment.moved is None else [moment.moved, *parts]


def _is_small(moment: Moment, parts: Sequence[Part]) -> bool:
    """Return whether the nodes of a sum have few enough joint choices."""
    every = _every(moment, parts)
    counts = {part.nodes: _options(part) for part in every}
    states = math.prod(len(part.shape.size_bytes) for part in every)
    cells = math.prod(counts.values()) * len(moment.size_bytes)
    return states <= MOST_STATES and cells <= MOST_CELLS


def _options(part: Part) -> int:
    """Return the number of options of the node that determines the size of a part."""
    (*others, mask) = part.shape.masks
    return len(part.shape.size_bytes) if others else len(mask)


def _make_held(shape: Shape) -> _Held:
    ties = tuple(np.where(mask, 0.0, np.inf) for mask in shape.masks)
    return _Held(NodeTable(np.zeros(len(shape.size_bytes))), ties, classes(shape.size_bytes))


def _table(shapes: Sequence[Shape], places: Sequence[int], ends: int, own: Floats) -> _Table:
    """Return the tables of a sum of parts of one node each, at ``places`` among the ends.

    ``own`` are the bytes that are live in any state.
    """
    counts = [len(shape.size_bytes) for shape in shapes]
    states = np.indices(counts).reshape(len(shapes), math.prod(counts))
    masks: list[Flags] = [np.ones((1, 1), dtype=np.bool_)] * ends
    total = np.zeros((states.shape[1], len(own))) + own
    for shape, place, state in zip(shapes, places, states, strict=True):
        sizes, (mask,) = shape.size_bytes[state], shape.masks
        total += sizes if sizes.ndim == 2 else sizes[:, None]
        masks[place] = masks[place] & mask[:, state]
    possible = np.ones(len(total), dtype=np.bool_)
    for mask in masks:
        possible &= mask.any(axis=0)
    total, masks = total[possible], [mask[:, possible] for mask in masks]
    if ends == 1:
        total, masks = total[masks[0].argmax(axis=1)], []
    allowed = tuple(np.where(mask, 0.0, np.inf) for mask in masks)
    return _Table(np.ascontiguousarray(total), np.zeros_like(total), allowed)
