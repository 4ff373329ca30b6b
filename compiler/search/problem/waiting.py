"""Live tensors during an op or reshard, excluding its own operands and results.

The size of each *part* depends on one or two nodes of the problem. A live tensor has a layout that
one of them chooses; a tensor that two ops read in the same layout keeps it between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.search.problem.behind import left_bytes
from tensoropt.compiler.search.problem.problem import Floats
from tensoropt.compiler.search.problem.tables import (
    Assignment,
    End,
    Flags,
    MeshTables,
    SharedEnd,
    tensor_bytes,
)
from tensoropt.compiler.support.identity import Same
from tensoropt.runtime.layout.layout import Layout

__all__ = ["Moment", "Part", "Shape", "Waits", "classes"]

FEWEST_READERS = 3
"""Fewest readers of a tensor with a bound on slices for its last reader.

With two readers, plans that read the larger layout last seem lean instead. They need more memory
too, which the tables do not charge.
"""
MOST_READERS = 4
"""Most readers of these tensors: with more, the order of layouts is not always the best."""


@dataclass(frozen=True, eq=False)
class Shape:
    """Bytes [state], or [state, option] if they depend on the node of the moment.

    ``masks`` has the options of each state, per node of a part: [option, state]. Any options of all
    nodes are in exactly one state. Equal parts share one object.
    """

    size_bytes: Floats
    masks: tuple[Flags, ...]

    @cached_property
    def least_bytes(self) -> float:
        return float(self.size_bytes.min())

    def bytes(self, picked: Sequence[int], option: int) -> float:
        """Return the live bytes for options of the nodes, and of the moment's node."""
        held = np.logical_and.reduce([m[p] for m, p in zip(self.masks, picked, strict=True)])
        own = self.size_bytes[int(held.argmax())]
        return float(own if self.size_bytes.ndim == 1 else own[option])


@dataclass(frozen=True, eq=False)
class Part:
    """The live bytes of a value, depending on some nodes of the problem."""

    value: int
    nodes: tuple[int, ...]
    shape: Shape

    def bytes(self, chosen: Assignment, moment: Moment) -> float:
        return self.shape.bytes([int(chosen[n]) for n in self.nodes], int(chosen[moment.node]))


@dataclass(frozen=True, eq=False)
class Moment:
    """An op that runs, or a tensor that is resharded (``moved``) for a node of the problem.

    ``size_bytes`` are its own live bytes, per option of the node. Each part of another live value
    (``waiting``) is a lower bound by itself.
    """

    node: int
    size_bytes: Floats
    waiting: Sequence[Part]
    moved: Part | None = None

    @cached_property
    def least(self) -> dict[int, float]:
        """The least bytes of each other live value."""
        found: dict[int, float] = {}
        for part in self.waiting:
            found[part.value] = max(found.get(part.value, 0.0), part.shape.least_bytes)
        return found

    @cached_property
    def least_bytes(self) -> float:
        return sum(self.least.values())


@dataclass
class _Known:
    """Objects made once per key."""

    found: dict[object, object] = field(default_factory=dict)

    def get(self, held: tuple[object, ...], make: Callable[[], object]) -> object:
        key = tuple(one if isinstance(one, int | str) else Same(one) for one in held)
        if key not in self.found:
            self.found[key] = make()
        return self.found[key]


class Waits:
    """The moments of a model's tables on one mesh.

    A tensor keeps the layout of its producer until its first read. Then it has the layout of its
    first copy or of a reader. If a later reader requires a smaller layout, the tensor may be
    resharded to it earlier (decision 52).
    """

    def __init__(self, tables: MeshTables) -> None:
        self.tables, self.graph = tables, tables.graph
        tables.build()
        self._position = {node: n for n, node in enumerate(tables.variables)}
        self._known = _Known()

    @cached_property
    def moments(self) -> dict[int, Moment]:
        """The moment of each op that runs; linear in the other live tensors, over all ops."""
        found = {}
        for index, alive in self._alive():
            node = self.graph.nodes[index]
            own = self.tables.node_table(index).transient_bytes
            others = [value for value in alive if value not in node.operands]
            parts = [part for value in others for part in self._parts(value, index)]
            read = [value for value in alive if value in node.operands]
            parts += [part for value in read for part in self._elsewhere(value, index)]
            place = self._position[index]
            found[index] = Moment(place, own, [p for p in parts if place not in p.nodes])
        return found

    @cached_property
    def moves(self) -> dict[int, list[Moment]]:
        """The moments in which tensors are resharded for each op; none in small problems."""
        alive, found = dict(self._alive()), dict[int, list[Moment]]()
        for value, source, target, index in self.tables.moved:
            if index in alive:
                moment = self._move(value, source, target, index, alive[index])
                found.setdefault(index, []).append(moment)
        return found

    @cached_property
    def cuts(self) -> dict[int, list[Moment]]:
        """The moments right after each op in which its result is sliced, as nothing reads it whole.

        Small problems have none.
        """
        alive, found = dict(self._alive()), dict[int, list[Moment]]()
        for value, source, target, _ in self.tables.moved:
            index = self.graph.values[value].producer
            if index in alive and source.node == self._position[index]:
                others = [*alive[index], *self.graph.nodes[index].results]
                waiting = [v for v in others if v != value and v in self.tables.held]
                found.setdefault(index, []).append(self._cut(value, source, target, index, waiting))
        return found

    @cached_property
    def behind(self) -> dict[int, list[Moment]]:
        """The moments right after each op in which an operand is sliced for the last reader.

        Small problems have none.
        """
        found: dict[int, list[Moment]] = {}
        for index, alive in () if self.tables.is_small else self._alive():
            for value in alive:
                readers = self._readers(value)
                if not FEWEST_READERS <= len(readers) <= MOST_READERS or readers[-2] != index:
                    continue
                if (moved := self._bound_last(value)) is not None:
                    found.setdefault(index, []).append(self._slice_after(moved, index, alive))
        return found

    def _slice_after(self, moved: Part, index: int, alive: Sequence[int]) -> Moment:
        """Return the moment right after node ``index`` in which one of its operands is sliced."""
        place = self._position[index]
        parts = [p for v in alive if v != moved.value for p in self._parts(v, index)]
        return Moment(place, self._add_up(index), [p for p in parts if place not in p.nodes], moved)

    def _is_shared(self, value: int) -> bool:
        """Return whether the program returns a value unchanged."""
        return any(
            self.graph.is_passed_on(value, node) for node, _ in self.graph.values[value].uses
        )

    def _bound_last(self, value: int) -> Part | None:
        """Return the least live bytes of a value when only its last reader is left.

        The layout for the reader before is included. ``None`` if unknown, or if nothing is sliced.
        """
        info, (made, _) = self.graph.values[value].info, self.tables.held[value]
        every = [self._wanted(value, reader) for reader in self._readers(value)]
        fixed = info is None or not info.is_movable or self._is_shared(value)
        if fixed or any(len(own) > 1 for own in every):
            return None
        wanted = [own for (own,) in every]

        def make() -> Shape:
            assert info is not None
            layouts = (x for own in (made.layouts, *wanted) for x in own)
            return classes(left_bytes(info, wanted[-2], wanted[-1], layouts, self.tables.resharder))

        shape = self._known.get(("left", info, made.layouts, *wanted), make)
        assert isinstance(shape, Shape)
        last = self._position[self._readers(value)[-1]]
        return Part(value, (last,), shape) if shape.size_bytes.any() else None

    def _add_up(self, index: int) -> Floats:
        """Return the bytes per option of a node's results that other nodes read."""
        made = [v for v in self.graph.nodes[index].results if self.graph.values[v].uses]
        every = [(v, self.tables.held[v][0].layouts) for v in made if v in self.tables.held]
        found = self._none(len(self.tables.options[index]))

        def make() -> Floats:
            return sum((self._bytes(value, layouts) for value, layouts in every), found)

        infos = (self.graph.values[value].info for value, _ in every)
        own = self._known.get(("made", found, *infos, *(x for _, x in every)), make)
        assert isinstance(own, np.ndarray)
        return own

    def _cut(
        self, value: int, source: End, target: End, index: int, waiting: Sequence[int]
    ) -> Moment:
        """Return the moment after node ``index`` in which a value is resharded, if it shrinks."""
        info = self.graph.values[value].info

        def make() -> Shape:
            before, after = (self._bytes(value, end.layouts) for end in (source, target))
            moved = self.tables.move_bytes(value, source, target)
            own = before[:, None]
            return classes(np.where(after < own, moved, own).T)

        shape = self._known.get(("cut", info, source.layouts, target.layouts), make)
        assert isinstance(shape, Shape)
        parts = [part for other in waiting for part in self._parts(other, index)]
        parts = [part for part in parts if source.node not in part.nodes]
        own = self._none(len(source.layouts))
        return Moment(source.node, own, parts, Part(value, (target.node,), shape))

    def _alive(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each op that runs, with the values made before it and read by it or later."""
        if self.graph.trains:  # many tensors overwrite others
            return
        coming = sorted(self._values(), key=lambda value: -self.graph.values[value].producer)
        alive: list[int] = []
        for index, node in enumerate(self.graph.nodes):
            while coming and self.graph.values[coming[-1]].producer < index:
                alive.append(coming.pop())
            alive = [value for value in alive if self._readers(value)[-1] >= index]
            if node.kind == "op" and not node.constant:
                yield index, alive.copy()

    def _values(self) -> list[int]:
        every = self.tables.held
        return [v for v in every if self.graph.values[v].uses and not self.graph.stays(v)]

    def _readers(self, value: int) -> list[int]:
        return sorted({node for node, _ in self.graph.values[value].uses})

    def _parts(self, value: int, index: int) -> Iterator[Part]:
        """Yield the parts of a value that is live while node ``index`` runs."""
        made, read = self.tables.held[value]
        readers = self._readers(value)
        if readers[-1] <= index:
            return
        if read is None or index < readers[0]:
            yield self._unread(value)
        elif isinstance(read, End):
            after = next(reader for reader in readers if reader > index)
            for reader in {readers[-1]: None, after: None}:
                yield self._smaller(value, read, self._reader(value, reader))
            yield from self._find_between(value, readers, index)
        else:
            yield Part(value, (read.node,), self._sizes(value, made, read.layouts))

    def _unread(self, value: int) -> Part:
        """Return the part of a value before its first read: as made, or sliced right away."""
        made, read = self.tables.held[value]
        if self._is_shared(value):
            return Part(value, (made.node,), self._sizes(value, made, made.layouts))
        if read is None:
            (reader,) = self._readers(value)
            return self._smaller(value, made, self._reader(value, reader))
        if isinstance(read, End):
            return self._smaller(value, made, read)
        return self._smallest(value, made, read)

    def _reader(self, value: int, node: int) -> End:
        """Return the layouts in which a node reads a value, for the first of several operands."""
        return End(self._position[node], self._wanted(value, node)[0])

    def _smaller(self, value: int, one: End, other: End) -> Part:
        """Return the bytes of a tensor in the layout of one of two ends, whichever is smaller."""

        def make() -> Shape:
            return _lesser(*(self._bytes(value, end.layouts) for end in (one, other)))

        info = self.graph.values[value].info
        shape = self._known.get(("smaller", info, one.layouts, other.layouts), make)
        assert isinstance(shape, Shape)
        return Part(value, (one.node, other.node), shape)

    def _smallest(self, value: int, made: End, read: SharedEnd) -> Part:
        """Return the least bytes of a tensor that is read in a set of layouts.

        It keeps its made layout if the set has that. Else a program may make any layout of the set
        first, or an intermediate layout.
        """
        info, mesh = self.graph.values[value].info, self.tables.mesh
        assert info is not None

        def make() -> Shape:
            own = self._bytes(value, made.layouts)
            least = info.memory_bytes / mesh.size if len(mesh.shape) > 1 else np.inf
            sizes = np.array(
                [min(self._bytes(value, x).min(), least if len(x) > 1 else np.inf) for x in sets]
            )
            is_read = np.array([[x in held for held in sets] for x in made.layouts])
            return _pairs(np.where(is_read, own[:, None], np.minimum(own[:, None], sizes)))

        sets = read.layouts
        shape = self._known.get(("smallest", info, made.layouts, sets), make)
        assert isinstance(shape, Shape)
        return Part(value, (made.node, read.node), shape)

    def _bytes(self, value: int, layouts: Sequence[Layout]) -> Floats:
        info, mesh = self.graph.values[value].info, self.tables.mesh
        return np.array([tensor_bytes(info, x, mesh) for x in layouts], dtype=np.float64)

    def _find_between(self, value: int, readers: Sequence[int], index: int) -> Iterator[Part]:
        """Yield the parts that stay from one reader to the next.

        Both require the same layout, or the next requires the layout of the second copy, which
        served the readers before.
        """
        before = max(reader for reader in readers if reader <= index)
        after = next(reader for reader in readers if reader > index)
        ends = [End(self._position[n], w) for n in (before, after) for w in self._wanted(value, n)]
        if len(ends) == 2 and before < index:
            yield self._match_ends(value, *ends)
        second = self.tables.second_copies.get(value)
        if second is not None and len(ends) == 2 and after < readers[-1]:
            yield self._match_ends(value, second, ends[1])

    def _wanted(self, value: int, node: int) -> list[tuple[Layout, ...]]:
        """Return the layouts per option of each operand of a node that is this value."""
        uses = self.graph.values[value].uses
        return [self.tables.wanted(node, operand) for reader, operand in uses if reader == node]

    def _match_ends(self, value: int, first: End, last: End) -> Part:
        """Return the bytes of a tensor with equal layouts at two ends, 0 if they differ.

        Its smallest layouts are not distinguished.
        """
        info, mesh = self.graph.values[value].info, self.tables.mesh

        def make() -> Shape:
            at_last = frozenset(last.layouts)
            both = [x for x in dict.fromkeys(first.layouts) if x in at_last]
            sizes = {x: tensor_bytes(info, x, mesh) for x in both}
            least = min(sizes.values(), default=0)
            kept = [x for x, size in sizes.items() if size > least]
            one, other = (_match_layouts(end.layouts, kept) for end in (first, last))
            # Per layout: at both ends, or at the first end only; then at neither.
            neither = ~one.any(axis=1, keepdims=True)
            ones = np.concatenate([one, one, neither], axis=1)
            others = np.concatenate(
                [other, ~other, np.ones((len(other), 1), dtype=np.bool_)], axis=1
            )
            bytes_ = [*(sizes[x] for x in kept), *(0 for _ in kept), 0]
            return Shape(np.array(bytes_, dtype=np.float64), (ones, others))

        shape = self._known.get(("alike", info, first.layouts, last.layouts), make)
        assert isinstance(shape, Shape)
        return Part(value, (first.node, last.node), shape)

    def _elsewhere(self, value: int, index: int) -> Iterator[Part]:
        """Yield the part of an operand that later readers require in another layout."""
        _, read = self.tables.held[value]
        readers = self._readers(value)
        if readers[-1] <= index or not isinstance(read, End):
            return
        every, last = self._wanted(value, index), self._reader(value, readers[-1])

        def make() -> Shape:
            first, then = (self._bytes(value, end.layouts) for end in (read, last))
            there = [[x in own for own in zip(*every, strict=True)] for x in read.layouts]
            waits = np.minimum(first[:, None], then)
            return _pairs(np.where(np.array(there)[:, None], 0.0, waits[..., None]))

        info = self.graph.values[value].info
        shape = self._known.get(("elsewhere", info, read.layouts, last.layouts, *every), make)
        assert isinstance(shape, Shape)
        yield Part(value, (read.node, last.node), shape)

    def _sizes(
        self, value: int, made: End, options: Sequence[Layout | tuple[Layout, ...]]
    ) -> Shape:
        """Return the bytes of a live tensor in a layout, or in the smallest of several.

        If it is read in several layouts, it may also keep the layout of its producer.
        """
        info, mesh = self.graph.values[value].info, self.tables.mesh

        def make() -> Shape:
            each = [(one,) if isinstance(one, Layout) else one for one in options]
            ways = [one if len(one) == 1 else (*one, *made.layouts) for one in each]
            sizes = [min(tensor_bytes(info, layout, mesh) for layout in one) for one in ways]
            return classes(np.array(sizes, dtype=np.float64))

        shape = self._known.get(("sizes", info, made.layouts, options), make)
        assert isinstance(shape, Shape)
        return shape

    def _move(
        self, value: int, source: End, target: End, index: int, alive: Sequence[int]
    ) -> Moment:
        """Return the moment in which a value is resharded, after the operands before it."""
        info = self.graph.values[value].info
        assert info is not None

        def make() -> Shape:
            before, after = (self._bytes(value, end.layouts) for end in (source, target))
            moved = self.tables.move_bytes(value, source, target)
            # A tensor that shrinks may have been resharded earlier.
            return classes(np.where(after < before[:, None], after, moved))

        shape = self._known.get(("move", info, source.layouts, target.layouts), make)
        assert isinstance(shape, Shape)
        own, there = self._there(value, target, index)
        parts = [
            part
            for other in alive
            if other != value and other not in there
            for part in self._parts_of(other, index)
        ]
        parts = [part for part in parts if target.node not in part.nodes]
        return Moment(target.node, own, parts, Part(value, (source.node,), shape))

    def _parts_of(self, value: int, index: int) -> Iterator[Part]:
        """Yield the parts of a value while others are resharded for node ``index``."""
        _, read = self.tables.held[value]
        readers = self._readers(value)
        if index == readers[-1] and index != readers[0] and isinstance(read, End):
            yield self._smaller(value, read, self._reader(value, index))
        elif index == readers[0]:
            yield self._unread(value)
        else:
            yield from self._parts(value, index)

    def _there(self, value: int, target: End, index: int) -> tuple[Floats, set[int]]:
        """Return the bytes of operands resharded earlier for the same node, and these operands."""
        operands = self.graph.nodes[index].operands
        if target.node != self._position[index]:
            return self._none(len(target.layouts)), set()
        before = {v for v in operands[: operands.index(value)] if v in self.tables.held}
        before = {v for v in before if v is not None and not self.graph.stays(v)}

        def make() -> Floats:
            found = np.zeros(len(target.layouts))
            for held in before:
                layouts = self._wanted(held, index)[0]
                info = self.graph.values[held].info
                found += [tensor_bytes(info, x, self.tables.mesh) for x in layouts]
            return found

        infos = [self.graph.values[held].info for held in sorted(before)]
        wanted = [self._wanted(held, index)[0] for held in sorted(before)]
        own = self._known.get(("there", len(target.layouts), *infos, *wanted), make)
        assert isinstance(own, np.ndarray)
        return own, before

    def _none(self, count: int) -> NDArray[np.float64]:
        own = self._known.get(("none", count), lambda: np.zeros(count))
        assert isinstance(own, np.ndarray)
        return own


def _lesser(first: Floats, last: Floats) -> Shape:
    """Return the shape of the lesser bytes of two nodes, each per option."""
    first, last = np.minimum(first, last.max()), np.minimum(last, first.max())
    sizes, ones, others = [], [], []
    for size in np.union1d(first, last):
        for one, other in ((first == size, last >= size), (first > size, last == size)):
            if one.any() and other.any():
                sizes.append(size)
                ones.append(one)
                others.append(other)
    return Shape(np.array(sizes), (np.stack(ones, axis=1), np.stack(others, axis=1)))


def _pairs(table: Floats) -> Shape:
    """Return the shape of bytes that depend on two nodes by ``table``.

    The table is [option, option], or has the options of the moment's node as its last axis.
    """
    rows, row_of = np.unique(table, axis=0, return_inverse=True)
    both, column_of = np.unique(rows, axis=1, return_inverse=True)
    counts = both.shape[:2]
    states = np.indices(counts).reshape(2, -1)
    ends = zip((row_of, column_of), states, strict=True)
    masks = tuple(np.reshape(own, -1)[:, None] == state for own, state in ends)
    sizes = both.reshape(math.prod(counts), *both.shape[2:])
    return Shape(np.ascontiguousarray(sizes), masks)


def classes(table: Floats) -> Shape:
    """Return the shape of bytes by ``table``: [option], or [option, option of the moment]."""
    states, state_of = np.unique(table, axis=0, return_inverse=True)
    mask = np.arange(len(states)) == np.reshape(state_of, -1)[:, None]
    return Shape(np.ascontiguousarray(states), (mask,))


def _match_layouts(layouts: Sequence[Layout], others: Sequence[Layout]) -> Flags:
    """Return which of ``layouts`` equal which of the distinct ``others``, as [layout, other]."""
    place = {other: number for number, other in enumerate(others)}
    places = np.array([place.get(layout, -1) for layout in layouts], dtype=np.int64)
    found: Flags = places[:, None] == np.arange(len(others))
    return found
