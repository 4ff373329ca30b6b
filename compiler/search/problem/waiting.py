"""What waits while an op runs: tensors made before it that are read after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.search.problem.problem import Floats
from tensoropt.compiler.search.problem.tables import End, MeshTables, tensor_bytes

__all__ = ["Moment", "Waiting", "Waits"]


@dataclass(frozen=True, eq=False)
class Waiting:
    """A node of the problem that says how a tensor lies, and its bytes per option: one object for
    tensors alike."""

    node: int
    size_bytes: Floats


@dataclass(frozen=True, eq=False)
class Moment:
    """An op of the graph that runs, as a node of the problem, with bytes per option; what waits."""

    node: int
    size_bytes: Floats
    waiting: Sequence[Waiting]

    @property
    def least_bytes(self) -> float:
        return float(sum(part.size_bytes.min() for part in self.waiting))


class Waits:
    """The moments of a model's tables on one mesh.

    A tensor lies as it was made until it is first read, then as its first copy does, or as it is
    read. One that is read in between is left out there: the op that does so counts it, perhaps in
    another layout.
    """

    def __init__(self, tables: MeshTables) -> None:
        self.tables, self.graph = tables, tables.graph
        assert tables.problem  # which knows who holds what
        self._sizes: dict[object, Floats] = {}

    @cached_property
    def moments(self) -> dict[int, Moment]:
        """The moment of each op that runs; linear in the tensors that wait, over all ops."""
        if self.graph.trains:  # of which much takes the place of something else
            return {}
        position = {node: n for n, node in enumerate(self.tables.variables)}
        coming = sorted(self._values(), key=lambda value: -self.graph.values[value].producer)
        alive: list[int] = []
        found = {}
        for index, node in enumerate(self.graph.nodes):
            while coming and self.graph.values[coming[-1]].producer < index:
                alive.append(coming.pop())
            alive = [value for value in alive if self._readers(value)[-1] > index]
            if node.kind == "op" and not node.constant:
                parts = [self._part(value, index) for value in alive if value not in node.operands]
                own = self.tables.node_table(index).transient_bytes
                found[index] = Moment(position[index], own, parts)
        return found

    def _values(self) -> list[int]:
        every = self.tables.held
        return [v for v in every if self.graph.values[v].uses and not self.graph.stays(v)]

    def _readers(self, value: int) -> list[int]:
        return sorted({node for node, _ in self.graph.values[value].uses})

    def _part(self, value: int, index: int) -> Waiting:
        made, read = self.tables.held[value]
        if read is None or index < self._readers(value)[0]:
            return Waiting(made.node, self._bytes(value, made, made.layouts))
        return Waiting(read.node, self._bytes(value, made, read.layouts))

    def _bytes(
        self, value: int, made: End, options: Sequence[Layout | tuple[Layout, ...]]
    ) -> Floats:
        """Return the bytes of a tensor that waits in a layout, or in the smallest of several.

        If it is read in several, it may also wait as it was made.
        """
        info, mesh = self.graph.values[value].info, self.tables.mesh
        key = (id(info), id(made.layouts), id(options))
        if key not in self._sizes:
            each = [(one,) if isinstance(one, Layout) else one for one in options]
            ways = [one if len(one) == 1 else (*one, *made.layouts) for one in each]
            sizes = [min(tensor_bytes(info, layout, mesh) for layout in one) for one in ways]
            self._sizes[key] = np.array(sizes, dtype=np.float64)
        return self._sizes[key]
