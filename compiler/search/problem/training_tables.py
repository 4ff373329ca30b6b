"""The problem of a training step: a variable per cluster, and edges for the tensors between them.

Forward and backward pass are charged together: an edge has the reshards of an activation and of its
gradient, and the bytes saved for the backward pass. The layouts of a stored parameter, of its
gradient and of its moments are variables like others. So ZeRO (arXiv 1910.02054) is a choice:
stored whole with split moments is its stage 1 or 2 (gradients are always split like moments). All
split is stage 3, fetched once for the forward and once for the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.pins import Condition
from tensoropt.compiler.search.problem.cluster_kind import ClusterKind, Column
from tensoropt.compiler.search.problem.clusters import Cluster, clusters_of, sums_of
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem
from tensoropt.compiler.search.problem.shared_gradients import SharedGradient, shared_gradients
from tensoropt.compiler.search.problem.small_step import small_step
from tensoropt.compiler.search.problem.tables import (
    Assignment,
    Flags,
    Memo,
    MeshTables,
    complete,
    rounds,
)
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.support.identity import Same
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["TrainingTables", "mesh_tables", "new_memo"]

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


class StepMemo(Memo):
    """The memo of training steps, with results for equal clusters and edges."""

    def __init__(self, mesh: Mesh, device: Device) -> None:
        super().__init__(mesh, device)
        self.kinds: dict[object, ClusterKind] = {}
        self.summed: dict[object, SharedGradient] = {}
        self.edges: dict[object, _Tables] = {}
        self.columns: dict[object, Column] = {}
        self.flags: dict[object, Flags] = {}


class TrainingTables(MeshTables):
    """The options and costs of a training step on one mesh."""

    def __post_init__(self) -> None:
        super().__post_init__()
        memo = self.memo
        assert isinstance(memo, StepMemo)
        self.clusters = clusters_of(self.graph)
        self._cluster_of = {m: n for n, c in enumerate(self.clusters) for m in c.members}
        self._sums = sums_of(self.graph)
        self._kind_of: dict[int, ClusterKind] = {}  # by leader
        self._summed: dict[int, SharedGradient] = {}  # by cluster
        self._kinds, self._summed_known = memo.kinds, memo.summed
        self._edges_known, self._columns, self._flags = memo.edges, memo.columns, memo.flags
        self._is_exact: bool | None = None

    def _new_memo(self) -> Memo:
        return StepMemo(self.mesh, self.device)

    def forget_edges(self) -> None:
        super().forget_edges()
        self._edges_known.clear()

    @property
    def leaders(self) -> list[int]:
        return [cluster.leader for cluster in self.clusters]

    def kind(self, cluster: Cluster) -> ClusterKind:
        """Return the costs of a cluster, the same for all equal clusters."""
        if cluster.leader not in self._kind_of:
            has_marks = self._fused or self.graph.conditions
            marks = tuple(map(self._marks, cluster.members)) if has_marks else ()
            key = (cluster.kind, marks)
            if key not in self._kinds:
                self._kinds[key] = ClusterKind(self, cluster)
            self._kind_of[cluster.leader] = self._kinds[key]
        return self._kind_of[cluster.leader]

    def _marks(self, member: int) -> object:
        """Return the properties of a member that the kind of its cluster lacks."""
        return self.is_fused(self.graph.nodes[member]), self.graph.conditions.get(member, ())

    def _conditions(self, index: int) -> tuple[Condition, ...]:
        """Return no conditions: ``ClusterKind`` applies the pins of a cluster."""
        return ()

    def choices(self, index: int) -> Sequence[Strategy]:
        """Return the strategy of a leader under each option of its node of the problem."""
        picks = self._options_of(self._cluster_of[index]).picks[:, 0]
        return [self.options[index][number] for number in picks.tolist()]

    def _options_of(self, number: int) -> ClusterKind | SharedGradient:
        """Return the costs of a cluster as a node of the problem."""
        return self._summed.get(number) or self.kind(self.clusters[number])

    def decode(self, assignment: Assignment) -> Assignment:
        """Return the option of each of ``variables`` in an assignment of the problem."""
        picked = np.zeros(len(self.graph.nodes), dtype=np.int32)
        for number, option in enumerate(assignment[: len(self.clusters)].tolist()):
            picked[self.clusters[number].members] = self._options_of(number).picks[option]
        return picked[self.variables]

    @cached_property
    def problem(self) -> Problem:
        """The pairwise factor graph; its node ``i`` is ``clusters[i]``, then come others.

        The problem of a small step has the costs of its programs (``small_step.py``).

        Values with several readers have copies, as in ``MeshTables.problem``. For a tensor with
        summed gradients, the copy and the sum are one node. State has no copies, because it is
        fetched for each use. Linear in the operands, times the sizes of distinct tables.
        """
        members = [cluster.members for cluster in self.clusters]
        picks = [self.kind(cluster).picks for cluster in self.clusters]
        own = small_step(self, members, picks, self.constant_edges)
        self._is_exact = own is not None
        return own or self._paired()

    @property
    def learns(self) -> bool:
        """True if the tables charge at most the memory of programs, as in small steps."""
        if self._is_exact is None:
            self.build()
        return bool(self._is_exact)

    @property
    def is_small(self) -> bool:
        """True if tables learn until points have the memory of programs."""
        return self.learns

    def on_variables(self, masks: Mapping[int, Flags]) -> dict[int, Flags]:
        """Return ``masks`` of graph nodes as masks over the options of the problem's nodes."""
        found: dict[int, Flags] = {}
        for node, mask in masks.items():
            number = self._cluster_of[node]
            picked = self._options_of(number).picks[:, self.clusters[number].members.index(node)]
            found[number] = found.get(number, True) & mask[picked]
        return found

    def constant_edges(self) -> list[EdgeTable]:
        """Return the edges from constants to the clusters that read them."""
        edges: list[EdgeTable] = []
        for value, targets in self._readers().items():
            if value in self.graph.storage.constants:
                self._connect(value, self._source_of(value), targets, [], edges)
        return edges

    def _paired(self) -> Problem:
        readers = self._readers()
        for value, targets in readers.items():
            if self._is_shared(value, targets):
                self._sum_up(value, targets, readers)
        nodes = [self._options_of(number).table for number in range(len(self.clusters))]
        edges: list[EdgeTable] = []
        for value, targets in self._readers().items():
            self._connect(value, self._source_of(value), targets, nodes, edges)
        return Problem(nodes, edges)

    def _readers(self) -> dict[int, list[_Target]]:
        """Return the readers of each value outside its cluster, in the order of the clusters."""
        readers: dict[int, list[_Target]] = {}
        for number, cluster in enumerate(self.clusters):
            for place, columns in self._options_of(number).wanted.items():
                target = _Target(number, tuple(columns))
                readers.setdefault(cluster.values[place], []).append(target)
        return readers

    def _source_of(self, value: int) -> _Source:
        producer = self.graph.values[value].producer
        number, node = self._cluster_of[producer], self.graph.nodes[producer]
        options, place = self._options_of(number), self.clusters[number].values.index(value)
        is_state = value in self.graph.storage.state
        return _Source(number, options.made[place], options.kept[place], node.constant, is_state)

    def _is_shared(self, value: int, targets: Sequence[_Target]) -> bool:
        """Return whether a value has copies; a gradient that an op passes on has none."""
        node, storage = self.graph.producer(value), self.graph.storage
        alone = value in storage.constants or value in storage.state
        return len(targets) > 1 and not (alone or (isinstance(node, Op) and node.passes))

    def _sum_up(
        self, value: int, targets: list[_Target], readers: dict[int, list[_Target]]
    ) -> None:
        """Merge each copy of a value with the sum of its readers' gradients into one node."""
        info, source = self.graph.values[value].info, self._source_of(value)
        if info is None:
            return
        for (sharing, _), node in zip(rounds(targets), self._sums.get(value, ()), strict=False):
            number, copies = self._cluster_of[node], self._copies(source, sharing)
            kind = self.kind(self.clusters[number])
            shared = len(readers.get(self.graph.nodes[node].results[0], ())) > 1
            key = (Same(kind), info, Same(copies), shared)
            if key not in self._summed_known:
                self._summed_known[key] = shared_gradients(kind, info, copies, shared=shared)
            self._summed[number] = self._summed_known[key]

    def _connect(
        self,
        value: int,
        source: _Source,
        targets: list[_Target],
        nodes: list[NodeTable],
        edges: list[EdgeTable],
    ) -> None:
        """Connect the readers of a value to it, through copies if several share it."""
        producer, info = self.graph.producer(value), self.graph.values[value].info
        if info is None or (source.constant and producer.follows is not None):
            return  # a literal of another cluster is sliced for each use
        if not self._is_shared(value, targets) or self._is_reduced(value):
            edges += [self._joined(info, source, target) for target in targets]
            return
        sums = self._sums.get(value, ())
        for place, (sharing, paying) in enumerate(rounds(targets)):
            number = self._cluster_of[sums[place]] if place < len(sums) else None
            copy = self._shared_copy(source, sharing, number, len(nodes))
            if copy.node == len(nodes):
                nodes.append(self._free_node(len(copy.columns[0].layouts)))
            edges.append(self._joined(info, source, copy))
            layouts = copy.columns[0].layouts
            source = _Source(copy.node, layouts, self._all(len(layouts), copy.is_late))
            edges += [self._joined(info, source, target) for target in paying]

    def _is_reduced(self, value: int) -> bool:
        """Return whether a value is a sum that itself chooses the layout for its readers."""
        return self._cluster_of[self.graph.values[value].producer] in self._summed

    def _all(self, count: int, flag: bool) -> NDArray[np.bool_]:
        return self._flags.setdefault((count, flag), np.full(count, flag))

    def _shared_copy(
        self, source: _Source, targets: list[_Target], number: int | None, new: int
    ) -> _Target:
        """Return the copy for ``targets``: cluster ``number``, a sum, or else node ``new``."""
        late, times = any(t.is_late for t in targets), max(t.times for t in targets)
        if number is None:
            return _Target(new, (self._column(self._copies(source, targets), late, times),))
        return _Target(number, (self._column(self._summed[number].copies, late, times),))

    def _column(self, copies: tuple[Layout, ...], late: bool, times: int) -> Column:
        """Return the column of a copy; the same object for the same layouts."""
        key = (Same(copies), late, times)
        if key not in self._columns:
            self._columns[key] = Column(copies, 0, late, self._all(len(copies), False), times)
        return self._columns[key]

    def _copies(self, source: _Source, targets: list[_Target]) -> tuple[Layout, ...]:
        """Return the layouts of a copy: all complete layouts that are made or wanted."""
        groups = [source.layouts, *(c.layouts for target in targets for c in target.columns)]
        return self._cache(("copy", *dict.fromkeys(map(Same, groups))), complete(groups))

    def _joined(self, info: TensorInfo, source: _Source, target: _Target) -> EdgeTable:
        key = (
            info,
            Same(source.layouts),
            Same(source.kept),
            source.constant,
            source.state,
            *target.columns,
        )
        if key not in self._edges_known:
            self._edges_known[key] = self._tables(info, source, target)
        return EdgeTable(source.node, target.node, *self._edges_known[key])

    def _tables(self, info: TensorInfo, source: _Source, target: _Target) -> _Tables:
        """Return the costs of a target's columns, without layouts that were charged before."""
        shape = len(source.layouts), len(target.columns[0].layouts)
        time_s, static, transient = (np.zeros(shape) for _ in range(3))
        for column in target.columns:
            own, peak = self._edge_tables.table(
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
        size = [0 if x is None else tensor_bytes(info, x, self.mesh) for x in layouts]
        shared = (made[:, None] == kept[None, :]) & source.kept[:, None]
        return np.where(shared, 0.0, np.array(size, dtype=np.float64)[None, :])


def mesh_tables(graph: Graph, mesh: Mesh, device: Device, memo: Memo | None = None) -> MeshTables:
    """Return the tables of a model or of a training step; see :class:`MeshTables` for ``memo``."""
    return (TrainingTables if graph.trains else MeshTables)(graph, mesh, device, memo)


def new_memo(graph: Graph, mesh: Mesh, device: Device) -> Memo:
    """Return an empty memo for the graphs of the step, or model, of ``graph`` on ``mesh``."""
    return (StepMemo if graph.trains else Memo)(mesh, device)


def _kept_layouts(columns: Sequence[Column]) -> list[list[Layout | None]]:
    """Return the layouts that are kept per option; ``None`` if an earlier list has the layout."""
    found: list[list[Layout | None]] = []
    for column in columns:
        if column.late:
            seen = [[row[n] for row in found] for n in range(len(column.layouts))]
            found.append([None if x in seen[n] else x for n, x in enumerate(column.layouts)])
    return found
