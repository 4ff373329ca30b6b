"""Sizes of live tensors, as functions of the options of one or two nodes of the problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.search.problem.cost_tables import Assignment, End, Flags, SharedEnd
from tensoropt.compiler.search.problem.problem import Floats
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.identity import Known
from tensoropt.runtime.layout.layout import Layout

__all__ = ["LiveSizes", "Part", "Shape", "classes", "pairs"]


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

    def bytes(self, chosen: Assignment, node: int) -> float:
        """Return the live bytes in an assignment, at a moment of ``node``."""
        return self.shape.bytes([int(chosen[n]) for n in self.nodes], int(chosen[node]))


class LiveSizes:
    """The parts of live tensors on one mesh; equal parts share their shapes."""

    def __init__(self, tables: MeshTables) -> None:
        self.tables, self.graph = tables, tables.graph
        self.position = {node: n for n, node in enumerate(tables.variables)}
        self.known = Known()
        self._readers: dict[int, list[int]] = {}
        self._unread: dict[int, Part] = {}

    def is_shared(self, value: int) -> bool:
        """Return whether the program returns a value unchanged."""
        return any(
            self.graph.is_passed_on(value, node) for node, _ in self.graph.values[value].uses
        )

    def readers(self, value: int) -> list[int]:
        """Return the nodes that read a value, in program order."""
        if value not in self._readers:
            self._readers[value] = sorted({node for node, _ in self.graph.values[value].uses})
        return self._readers[value]

    def unread(self, value: int) -> Part:
        """Return the part of a value before its first read: as made, or sliced right away."""
        if value not in self._unread:
            self._unread[value] = self._make_unread(value)
        return self._unread[value]

    def _make_unread(self, value: int) -> Part:
        made, read = self.tables.ends.held[value]
        if self.is_shared(value):
            return Part(value, (made.node,), self.least(value, made, made.layouts))
        if read is None:
            (reader,) = self.readers(value)
            return self.smaller(value, made, self.reader(value, reader))
        if isinstance(read, End):
            return self.smaller(value, made, read)
        return self.smallest(value, made, read)

    def reader(self, value: int, node: int) -> End:
        """Return the layouts in which a node reads a value, for the first of several operands."""
        return End(self.position[node], self.wanted(value, node)[0])

    def smaller(self, value: int, one: End, other: End) -> Part:
        """Return the bytes of a tensor in the layout of one of two ends, whichever is smaller."""

        def make() -> Shape:
            return _lesser(*(self.bytes(value, end.layouts) for end in (one, other)))

        info = self.graph.values[value].info
        shape = self.known.get(("smaller", info, one.layouts, other.layouts), make)
        return Part(value, (one.node, other.node), shape)

    def smallest(self, value: int, made: End, read: SharedEnd) -> Part:
        """Return the least bytes of a tensor that is read in a set of layouts.

        It keeps its made layout if the set has that. Else a program may make any layout of the set
        first, or an intermediate layout.
        """
        info, mesh = self.graph.values[value].info, self.tables.mesh
        assert info is not None

        def make() -> Shape:
            own = self.bytes(value, made.layouts)
            least = info.memory_bytes / mesh.size if len(mesh.shape) > 1 else np.inf
            sizes = np.array(
                [min(self.bytes(value, x).min(), least if len(x) > 1 else np.inf) for x in sets]
            )
            is_read = np.array([[x in held for held in sets] for x in made.layouts])
            return pairs(np.where(is_read, own[:, None], np.minimum(own[:, None], sizes)))

        sets = read.layouts
        shape = self.known.get(("smallest", info, made.layouts, sets), make)
        return Part(value, (made.node, read.node), shape)

    def bytes(self, value: int, layouts: Sequence[Layout]) -> Floats:
        """Return the bytes of a value in each layout."""
        info, mesh = self.graph.values[value].info, self.tables.mesh
        return np.array([tensor_bytes(info, x, mesh) for x in layouts], dtype=np.float64)

    def wanted(self, value: int, node: int) -> list[tuple[Layout, ...]]:
        """Return the layouts per option of each operand of a node that is this value."""
        uses = self.graph.values[value].uses
        return [self.tables.wanted(node, operand) for reader, operand in uses if reader == node]

    def match_ends(self, value: int, first: End, last: End) -> Part:
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

        shape = self.known.get(("alike", info, first.layouts, last.layouts), make)
        return Part(value, (first.node, last.node), shape)

    def least(self, value: int, made: End, options: Sequence[Layout | tuple[Layout, ...]]) -> Shape:
        """Return the bytes of a live tensor in a layout, or in the smallest of several.

        If it is read in several layouts, it may also keep the layout of its producer.
        """
        info, mesh = self.graph.values[value].info, self.tables.mesh

        def make() -> Shape:
            each = [(one,) if isinstance(one, Layout) else one for one in options]
            ways = [one if len(one) == 1 else (*one, *made.layouts) for one in each]
            sizes = [min(tensor_bytes(info, layout, mesh) for layout in one) for one in ways]
            return classes(np.array(sizes, dtype=np.float64))

        return self.known.get(("sizes", info, made.layouts, options), make)

    def zeros(self, count: int) -> NDArray[np.float64]:
        """Return zero bytes per option; the same object for the same ``count``."""
        return self.known.get(("none", count), lambda: np.zeros(count))


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


def pairs(table: Floats) -> Shape:
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
