"""Live tensors during an op or reshard, excluding its own operands and results.

The size of each *part* depends on one or two nodes of the problem. A live tensor has a layout that
one of them chooses; a tensor that two ops read in the same layout keeps it between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.problem.cost_tables import End
from tensoropt.compiler.search.problem.live_sizes import LiveSizes, Part, Shape, classes, pairs
from tensoropt.compiler.search.problem.problem import Floats
from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["Moment", "Waits"]


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


class Waits:
    """The moments of a model's tables on one mesh.

    A tensor keeps the layout of its producer until its first read. Then it has the layout of its
    first copy or of a reader. If a later reader requires a smaller layout, the tensor may be
    resharded to it earlier (decision 52).
    """

    def __init__(self, tables: MeshTables) -> None:
        self.tables, self.graph = tables, tables.graph
        tables.build()
        self.sizes = LiveSizes(tables)
        self._between: dict[tuple[int, int, bool], list[Part]] = {}

    @cached_property
    def moments(self) -> dict[int, Moment]:
        """The moment of each op that runs; linear in the other live tensors, over all ops."""
        found = {}
        for index, alive in self._alive:
            node = self.graph.nodes[index]
            own = self.tables.node_table(index).transient_bytes
            others = [value for value in alive if value not in node.operands]
            parts = [part for value in others for part in self._parts(value, index)]
            read = [value for value in alive if value in node.operands]
            parts += [part for value in read for part in self._elsewhere(value, index)]
            place = self.sizes.position[index]
            found[index] = Moment(place, own, [p for p in parts if place not in p.nodes])
        return found

    @cached_property
    def moves(self) -> dict[int, list[Moment]]:
        """The moments in which tensors are resharded for each op; none in small problems."""
        alive, found = dict(self._alive), dict[int, list[Moment]]()
        for value, source, target, index in self.tables.ends.moved:
            if index in alive:
                moment = self._move(value, source, target, index, alive[index])
                found.setdefault(index, []).append(moment)
        return found

    @cached_property
    def cuts(self) -> dict[int, list[Moment]]:
        """The moments right after each op in which its result is sliced, as nothing reads it whole.

        Small problems have none.
        """
        alive, found = dict(self._alive), dict[int, list[Moment]]()
        for value, source, target, _ in self.tables.ends.moved:
            index = self.graph.values[value].producer
            if index in alive and source.node == self.sizes.position[index]:
                others = [*alive[index], *self.graph.nodes[index].results]
                waiting = [v for v in others if v != value and v in self.tables.ends.held]
                found.setdefault(index, []).append(self._cut(value, source, target, index, waiting))
        return found

    def _cut(
        self, value: int, source: End, target: End, index: int, waiting: Sequence[int]
    ) -> Moment:
        """Return the moment after node ``index`` in which a value is resharded, if it shrinks."""
        info = self.graph.values[value].info

        def make() -> Shape:
            before, after = (self.sizes.bytes(value, end.layouts) for end in (source, target))
            moved = self.tables.move_bytes(value, source, target)
            own = before[:, None]
            return classes(np.where(after < own, moved, own).T)

        shape = self.sizes.known.get(("cut", info, source.layouts, target.layouts), make)
        parts = [part for other in waiting for part in self._parts(other, index)]
        parts = [part for part in parts if source.node not in part.nodes]
        own = self.sizes.zeros(len(source.layouts))
        return Moment(source.node, own, parts, Part(value, (target.node,), shape))

    @cached_property
    def _alive(self) -> list[tuple[int, list[int]]]:
        """Each op that runs, with the values made before it and read by it or later."""
        return [*self._list_alive()]

    def _list_alive(self) -> Iterator[tuple[int, list[int]]]:
        if self.graph.trains:  # many tensors overwrite others
            return
        coming = sorted(self._values(), key=lambda value: -self.graph.values[value].producer)
        alive: list[int] = []
        for index, node in enumerate(self.graph.nodes):
            while coming and self.graph.values[coming[-1]].producer < index:
                alive.append(coming.pop())
            alive = [value for value in alive if self.sizes.readers(value)[-1] >= index]
            if isinstance(node, Op) and not node.constant:
                yield index, alive.copy()

    def _values(self) -> list[int]:
        every = self.tables.ends.held
        staying = self.graph.storage.staying
        return [v for v in every if self.graph.values[v].uses and v not in staying]

    def _parts(self, value: int, index: int) -> list[Part]:
        """Return the parts of a value that is live while node ``index`` runs.

        They are the same until the next reader runs.
        """
        readers = self.sizes.readers(value)
        place = bisect_left(readers, index)
        key = value, place, place < len(readers) and readers[place] == index
        if key not in self._between:
            self._between[key] = [*self._list_parts(value, readers, index)]
        return self._between[key]

    def _list_parts(self, value: int, readers: Sequence[int], index: int) -> Iterator[Part]:
        made, read = self.tables.ends.held[value]
        if readers[-1] <= index:
            return
        if read is None or index < readers[0]:
            yield self.sizes.unread(value)
        elif isinstance(read, End):
            after = next(reader for reader in readers if reader > index)
            for reader in {readers[-1]: None, after: None}:
                yield self.sizes.smaller(value, read, self.sizes.reader(value, reader))
            yield from self._find_between(value, readers, index)
        else:
            yield Part(value, (read.node,), self.sizes.least(value, made, read.layouts))

    def _find_between(self, value: int, readers: Sequence[int], index: int) -> Iterator[Part]:
        """Yield the parts that stay from one reader to the next.

        Both require the same layout, or the next requires the layout of the second copy, which
        served the readers before.
        """
        before = max(reader for reader in readers if reader <= index)
        after = next(reader for reader in readers if reader > index)
        ends = [
            End(self.sizes.position[n], w)
            for n in (before, after)
            for w in self.sizes.wanted(value, n)
        ]
        if len(ends) == 2 and before < index:
            yield self.sizes.match_ends(value, *ends)
        second = self.tables.ends.second_copies.get(value)
        if second is not None and len(ends) == 2 and after < readers[-1]:
            yield self.sizes.match_ends(value, second, ends[1])

    def _elsewhere(self, value: int, index: int) -> Iterator[Part]:
        """Yield the part of an operand that later readers require in another layout."""
        _, read = self.tables.ends.held[value]
        readers = self.sizes.readers(value)
        if readers[-1] <= index or not isinstance(read, End):
            return
        every, last = self.sizes.wanted(value, index), self.sizes.reader(value, readers[-1])

        def make() -> Shape:
            first, then = (self.sizes.bytes(value, end.layouts) for end in (read, last))
            there = [[x in own for own in zip(*every, strict=True)] for x in read.layouts]
            waits = np.minimum(first[:, None], then)
            return pairs(np.where(np.array(there)[:, None], 0.0, waits[..., None]))

        info = self.graph.values[value].info
        shape = self.sizes.known.get(("elsewhere", info, read.layouts, last.layouts, *every), make)
        yield Part(value, (read.node, last.node), shape)

    def _move(
        self, value: int, source: End, target: End, index: int, alive: Sequence[int]
    ) -> Moment:
        """Return the moment in which a value is resharded, after the operands before it."""
        info = self.graph.values[value].info
        assert info is not None

        def make() -> Shape:
            before, after = (self.sizes.bytes(value, end.layouts) for end in (source, target))
            moved = self.tables.move_bytes(value, source, target)
            # A tensor that shrinks may have been resharded earlier.
            return classes(np.where(after < before[:, None], after, moved))

        shape = self.sizes.known.get(("move", info, source.layouts, target.layouts), make)
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
        _, read = self.tables.ends.held[value]
        readers = self.sizes.readers(value)
        if index == readers[-1] and index != readers[0] and isinstance(read, End):
            yield self.sizes.smaller(value, read, self.sizes.reader(value, index))
        elif index == readers[0]:
            yield self.sizes.unread(value)
        else:
            yield from self._parts(value, index)

    def _there(self, value: int, target: End, index: int) -> tuple[Floats, set[int]]:
        """Return the bytes of operands resharded earlier for the same node, and these operands."""
        operands = self.graph.nodes[index].operands
        if target.node != self.sizes.position[index]:
            return self.sizes.zeros(len(target.layouts)), set()
        before = {v for v in operands[: operands.index(value)] if v in self.tables.ends.held}
        before = {v for v in before if v is not None and v not in self.graph.storage.staying}

        def make() -> Floats:
            found = np.zeros(len(target.layouts))
            for held in before:
                layouts = self.sizes.wanted(held, index)[0]
                info = self.graph.values[held].info
                found += [tensor_bytes(info, x, self.tables.mesh) for x in layouts]
            return found

        infos = [self.graph.values[held].info for held in sorted(before)]
        wanted = [self.sizes.wanted(held, index)[0] for held in sorted(before)]
        key = ("there", len(target.layouts), *infos, *wanted)
        return self.sizes.known.get(key, make), before
