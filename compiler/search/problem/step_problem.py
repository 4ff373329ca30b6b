"""The problem of a training step: its clusters, and copies of tensors that several of them read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.problem.cluster_kind import ClusterKind, Column
from tensoropt.compiler.search.problem.clusters import clusters_of, sums_of
from tensoropt.compiler.search.problem.cost_tables import CostTables
from tensoropt.compiler.search.problem.model_problem import rounds
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem
from tensoropt.compiler.search.problem.shared_gradients import SharedGradient, shared_gradients
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import Layout

__all__ = ["StepProblem"]

_Tables = tuple[Floats, Floats, Floats]
"""Times, static and transient bytes of an edge."""


@dataclass(frozen=True, eq=False)
class _Source:
    """The producer of a value: a node of the problem, with a layout per option.

    ``kept`` marks the options in which the made tensor is kept anyway. ``constant`` and ``state``
    are properties of the value.
    """

    node: int
    layouts: tuple[Layout, ...]
    kept: NDArray[np.bool_]
    constant: bool = False
    state: bool = False


@dataclass(frozen=True, eq=False)
class _Target:
    """The reader of a value: a node of the problem, with its columns for the value."""

    node: int
    columns: tuple[Column, ...]

    @property
    def is_late(self) -> bool:
        return any(column.late for column in self.columns)

    @property
    def times(self) -> int:
        return max(column.times for column in self.columns)


class StepProblem:
    """Builds the pairwise factor graph; its node ``i`` is cluster ``i``, then come the copies.

    ``options`` are the costs of each cluster as a node. Values with several readers have copies, as
    in :class:`ModelProblem`. For a tensor with summed gradients, the copy and the sum are one node:
    ``summed`` has these clusters. State has no copies, because it is fetched for each use.
    """

    def __init__(self, tables: CostTables, kinds: Sequence[ClusterKind]) -> None:
        self.tables, self.graph = tables, tables.graph
        self.clusters, self.sums = clusters_of(self.graph), sums_of(self.graph)
        self.cluster_of = {m: n for n, c in enumerate(self.clusters) for m in c.members}
        self.options: list[ClusterKind | SharedGradient] = [*kinds]
        self.summed: dict[int, SharedGradient] = {}
        self.nodes: list[NodeTable] = []
        self.edges: list[EdgeTable] = []

    def build(self) -> Problem:
        """Return the problem. Linear in the operands, times the sizes of distinct tables."""
        readers = self._readers()
        for value, targets in readers.items():
            if self._is_shared(value, targets):
                self._sum_up(value, targets, readers)
        self.nodes, self.edges = [options.table for options in self.options], []
        for value, targets in self._readers().items():
            self._connect(value, targets)
        return Problem(self.nodes, self.edges)

    def constant_edges(self) -> list[EdgeTable]:
        """Return the edges from constants to the clusters that read them."""
        for value, targets in self._readers().items():
            if value in self.graph.storage.constants:
                self._connect(value, targets)
        return self.edges

    def _readers(self) -> dict[int, list[_Target]]:
        """Return the readers of each value outside its cluster, in the order of the clusters."""
        readers: dict[int, list[_Target]] = {}
        for number, (cluster, options) in enumerate(zip(self.clusters, self.options, strict=True)):
            for place, columns in options.wanted.items():
                target = _Target(number, tuple(columns))
                readers.setdefault(cluster.values[place], []).append(target)
        return readers

    def _source(self, value: int) -> _Source:
        number, storage = self._cluster(value), self.graph.storage
        options, place = self.options[number], self.clusters[number].values.index(value)
        traits = value in storage.constants, value in storage.state
        return _Source(number, options.made[place], options.kept[place], *traits)

    def _cluster(self, value: int) -> int:
        """Return the number of the cluster that makes a value."""
        return self.cluster_of[self.graph.values[value].producer]

    def _is_shared(self, value: int, targets: Sequence[_Target]) -> bool:
        """Return whether a value has copies; a gradient that an op passes on has none."""
        node, storage = self.graph.producer(value), self.graph.storage
        alone = value in storage.constants or value in storage.state
        return len(targets) > 1 and not (alone or (isinstance(node, Op) and node.passes))

    def _sum_up(
        self, value: int, targets: list[_Target], readers: dict[int, list[_Target]]
    ) -> None:
        """Merge each copy of a value with the sum of its readers' gradients into one node."""
        info, source = self.graph.values[value].info, self._source(value)
        if info is None:
            return
        for (sharing, _), node in zip(rounds(targets), self.sums.get(value, ()), strict=False):
            number, copies = self.cluster_of[node], self._copies(source, sharing)
            kind = self.options[number]
            assert isinstance(kind, ClusterKind)
            shared = len(readers.get(self.graph.nodes[node].results[0], ())) > 1
            make = partial(shared_gradients, kind, info, copies, shared=shared)
            own = self.tables.known.get((kind, info, copies, shared), make)
            self.options[number] = self.summed[number] = own

    def _connect(self, value: int, targets: list[_Target]) -> None:
        """Connect the readers of a value to it, through copies if several share it."""
        info, source = self.graph.values[value].info, self._source(value)
        follows = self.graph.producer(value).follows is not None
        if info is None or (source.constant and follows):
            return  # a literal of another cluster is sliced for each use
        # A sum itself chooses the layout for its readers.
        if not self._is_shared(value, targets) or self._cluster(value) in self.summed:
            self.edges += [self._joined(info, source, target) for target in targets]
            return
        sums = self.sums.get(value, ())
        for place, (sharing, paying) in enumerate(rounds(targets)):
            number = self.cluster_of[sums[place]] if place < len(sums) else None
            copy = self._copy(source, sharing, number)
            self.edges.append(self._joined(info, source, copy))
            layouts = copy.columns[0].layouts
            source = _Source(copy.node, layouts, self._all(len(layouts), copy.is_late))
            self.edges += [self._joined(info, source, target) for target in paying]

    def _all(self, count: int, flag: bool) -> NDArray[np.bool_]:
        return self.tables.known.get(("all", count, flag), lambda: np.full(count, flag))

    def _copy(self, source: _Source, targets: list[_Target], number: int | None) -> _Target:
        """Return the copy for ``targets``: cluster ``number``, a sum, or else a new node."""
        late, times = any(t.is_late for t in targets), max(t.times for t in targets)
        if number is not None:
            return _Target(number, (self._column(self.summed[number].copies, late, times),))
        copies = self._copies(source, targets)
        self.nodes.append(self.tables.free_node(len(copies)))
        return _Target(len(self.nodes) - 1, (self._column(copies, late, times),))

    def _column(self, copies: tuple[Layout, ...], late: bool, times: int) -> Column:
        """Return the column of a copy; the same object for the same layouts."""
        again = self._all(len(copies), False)
        make = partial(Column, copies, 0, late, again, times)
        return self.tables.known.get(("column", copies, late, times), make)

    def _copies(self, source: _Source, targets: list[_Target]) -> tuple[Layout, ...]:
        """Return the layouts of a copy: all complete layouts that are made or wanted."""
        wanted = (column.layouts for target in targets for column in target.columns)
        return self.tables.copies((source.layouts, *wanted))

    def _joined(self, info: TensorInfo, source: _Source, target: _Target) -> EdgeTable:
        made = source.layouts, source.kept, source.constant, source.state
        make = partial(self._tables, info, source, target)
        tables = self.tables.step_edges.get((info, *made, *target.columns), make)
        return EdgeTable(source.node, target.node, *tables)

    def _tables(self, info: TensorInfo, source: _Source, target: _Target) -> _Tables:
        """Return the costs of a target's columns, without layouts that were charged before."""
        shape = len(source.layouts), len(target.columns[0].layouts)
        time_s, static, transient = (np.zeros(shape) for _ in range(3))
        for column in target.columns:
            own, peak = self.tables.edge_tables.table(
                info, source.layouts, column.layouts, constant=source.constant
            )
            time_s += column.times * np.where(column.again, 0.0, own)
            np.maximum(transient, np.where(np.isfinite(own), peak, 0.0), out=transient)
        if target.is_late and not source.constant and not source.state:
            for layouts in _kept_layouts(target.columns):
                static += self._kept_bytes(info, source, layouts)
        return time_s, static, transient

    def _kept_bytes(
        self, info: TensorInfo, source: _Source, layouts: Sequence[Layout | None]
    ) -> Floats:
        """Return the bytes of ``layouts`` (per option) that the source does not keep."""
        numbers: dict[Layout | None, int] = {}
        made = np.array([numbers.setdefault(layout, len(numbers)) for layout in source.layouts])
        kept = np.array([numbers.setdefault(layout, len(numbers)) for layout in layouts])
        size = [0 if x is None else tensor_bytes(info, x, self.tables.mesh) for x in layouts]
        shared = (made[:, None] == kept[None, :]) & source.kept[:, None]
        return np.where(shared, 0.0, np.array(size, dtype=np.float64)[None, :])


def _kept_layouts(columns: Sequence[Column]) -> list[list[Layout | None]]:
    """Return the layouts that are kept per option; ``None`` if an earlier list has the layout."""
    found: list[list[Layout | None]] = []
    for column in columns:
        if column.late:
            seen = [[row[n] for row in found] for n in range(len(column.layouts))]
            found.append([None if x in seen[n] else x for n, x in enumerate(column.layouts)])
    return found
