"""Costs of equal clusters on a mesh: per option of the leader, the sum over all members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.layout.rule import AxisRole, Strategy
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Argument, Node, Op
from tensoropt.compiler.program.pins import allowed
from tensoropt.compiler.search.problem.clusters import Cluster
from tensoropt.compiler.search.problem.cost_tables import CostTables
from tensoropt.compiler.search.problem.following import follow
from tensoropt.compiler.search.problem.problem import NodeTable
from tensoropt.compiler.sharding.rule.strategies import strategy_of_roles
from tensoropt.compiler.support.identity import Known
from tensoropt.runtime.layout.layout import Layout

__all__ = ["ClusterKind", "Column"]


@dataclass(frozen=True, eq=False)
class Column:
    """The layouts, per option, in which a cluster reads a value of another cluster.

    ``part`` is the part of the step that reads the value if it is state (see ``Graph.part``), else
    0. ``late`` marks an activation that the backward pass reads, which is therefore kept. ``again``
    marks the options with the same layout in an earlier column, which cost nothing more. A step
    reshards the value ``times`` times.
    """

    layouts: tuple[Layout, ...]
    part: int
    late: bool
    again: NDArray[np.bool_]
    times: int


@dataclass
class _Reads:
    """Reads of a value from outside: per (member, operand), the layout of each option."""

    layouts: dict[tuple[int, int], list[Layout]] = field(default_factory=dict)
    part: dict[tuple[int, int], int] = field(default_factory=dict)
    late: dict[tuple[int, int], bool] = field(default_factory=dict)
    times: int = 1


class ClusterKind:
    """The tables of a cluster, and the layouts of the values that it makes and reads.

    ``picks`` holds, per option and member, the number of the member's strategy. ``made`` has the
    layouts of the values that the cluster makes, ``wanted`` of the values that it reads from
    others. ``kept`` marks the options in which a made layout is kept for the cluster's own backward
    ops. Values are numbered by their places in ``Cluster.values``. Linear in the options, times the
    operands of the members.
    """

    def __init__(self, tables: CostTables, cluster: Cluster) -> None:
        self.tables, self.cluster, self.graph = tables, cluster, tables.graph
        self.places = {value: place for place, value in enumerate(cluster.values)}
        self.nodes = [self.graph.nodes[member] for member in cluster.members]
        self._followed: dict[AxisRole, list[AxisRole]] = {}
        self._numbers = Known()
        rows = self._pinned([self._row(option) for option in self._allowed()])
        self.picks = np.array(rows, dtype=np.int32)
        self._walk()

    def _pinned(self, rows: list[list[int]]) -> list[list[int]]:
        """Return the rows in which every member meets its pins; raises PinsError if no row does."""
        cases = [
            (node.name, condition, [self.tables.options[member][row[place]] for row in rows])
            for place, (member, node) in enumerate(
                zip(self.cluster.members, self.nodes, strict=True)
            )
            for condition in self.graph.conditions.get(member, ())
        ]
        return [rows[n] for n in allowed(cases, len(rows), self.tables.mesh)] if cases else rows

    def _allowed(self) -> list[int]:
        """Return the allowed options of the leader.

        A gradient is summed over the ranks, at the latest once for all micro-batches. A norm adds
        partial sums.
        """
        leader, options = self.nodes[0], self.tables.options[self.cluster.leader]
        if not isinstance(leader, Op):
            return list(range(len(options)))
        accumulated = self.graph.storage.accumulated
        is_summed = leader.held and accumulated.isdisjoint(leader.results)
        if is_summed or not accumulated.isdisjoint(leader.operands):
            return [n for n, o in enumerate(options) if not o.results[0].has_partial]
        if leader.norm:
            partial = (
                n
                for n, option in enumerate(options)
                if all(placement.is_partial for placement in option.results[0].placements)
            )
            return [next(partial, 0)]
        return list(range(len(options)))

    def _row(self, option: int) -> list[int]:
        strategy = self.tables.options[self.cluster.leader][option]
        followed = [self._on_axis(role) for role in strategy.roles]
        row = [option]
        for place, node in enumerate(self.nodes[1:], 1):
            if not isinstance(node, Op):
                row.append(self._like_leader(place, strategy))
            elif node.repeats is not None and node.repeats in self.cluster.members:
                row.append(row[self.cluster.members.index(node.repeats)])
            else:
                row.append(self._number(place, tuple(axis[place - 1] for axis in followed)))
        return row

    def _on_axis(self, role: AxisRole) -> list[AxisRole]:
        if role not in self._followed:
            members = self.cluster.members[1:]
            self._followed[role] = follow(self.graph, self.cluster.leader, members, role)
        return self._followed[role]

    def _numbers_of(self, place: int) -> dict[Strategy, int]:
        options = self.tables.options[self.cluster.members[place]]
        return self._numbers.get((options,), lambda: {own: n for n, own in enumerate(options)})

    def _number(self, place: int, roles: tuple[AxisRole, ...]) -> int:
        """Return the strategy of these roles, or of the longest prefix that can be split."""
        number = self.tables.numbers(self.cluster.members[place]).get(roles)
        return self._nearest(place, roles) if number is None else number

    def _nearest(self, place: int, roles: tuple[AxisRole, ...]) -> int:
        node, numbers = self.nodes[place], self._numbers_of(place)
        assert isinstance(node, Op)
        for kept in range(len(roles), -1, -1):
            tried = (*roles[:kept], *(None,) * (len(roles) - kept))
            found = strategy_of_roles(node.rule, self.tables.mesh, tried, self.graph.pads)
            if found is not None:
                return numbers[self._extended(node, found)]
        raise AssertionError("the strategy that replicates is always offered")

    def _extended(self, node: Op, found: Strategy) -> Strategy:
        """Add the layouts of the values that the regions of the node capture."""
        extra = len(node.operands) - len(found.operands)
        whole = (Layout.replicated(self.tables.mesh),) * extra
        return Strategy(found.roles, found.operands + whole, found.results) if extra else found

    def _like_leader(self, place: int, strategy: Strategy) -> int:
        """Return the option of an argument or result with the layout of the leader's result."""
        layout = (strategy.results[0],)
        own = ((), layout) if isinstance(self.nodes[place], Argument) else (layout, ())
        return self._numbers_of(place)[Strategy((), *own)]

    def _walk(self) -> None:
        count = len(self.picks)
        self._time_s, self._static, self._transient = (np.zeros(count) for _ in range(3))
        made: dict[int, list[Layout]] = {}
        kept: dict[int, list[bool]] = {}
        reads: dict[int, _Reads] = {}
        for place, member in enumerate(self.cluster.members):
            self._add_table(place, member)
        for option, row in enumerate(self.picks):
            self._option(option, row, made, kept, reads)
        self.made = {value: tuple(layout) for value, layout in made.items()}
        self.kept = {value: np.array(flags) for value, flags in kept.items()}
        self.wanted = {value: _columns(layout) for value, layout in reads.items()}
        self.table = NodeTable(self._time_s, self._static, self._transient)

    def _add_table(self, place: int, member: int) -> None:
        table, picked = self.tables.node_table(member), self.picks[:, place]
        self._time_s += table.time_s[picked]
        self._static += table.static_bytes[picked]
        np.maximum(self._transient, table.transient_bytes[picked], out=self._transient)

    def _option(
        self,
        option: int,
        row: Sequence[int],
        made: dict[int, list[Layout]],
        kept: dict[int, list[bool]],
        reads: dict[int, _Reads],
    ) -> None:
        """Walk the members under one option: the values that they make, read, keep and reshard."""
        layouts: dict[int, Layout] = {}
        present: set[tuple[int, Layout]] = set()
        late: set[tuple[int, Layout]] = set()
        # Arguments first: an accumulated gradient exists before the op that adds to it. A follower
        # may come before its leader.
        members = self.cluster.members
        for place, node in sorted(
            enumerate(self.nodes),
            key=lambda own: (not isinstance(own[1], Argument), members[own[0]]),
        ):
            strategy = self.tables.options[self.cluster.members[place]][row[place]]
            for operand, value in enumerate(node.operands):
                if value is None or value in self.graph.storage.private:
                    continue
                layout = strategy.operands[operand]
                if value not in layouts:
                    self._add_read(reads, (place, operand), value, layout)
                    continue
                self._add_reshard(option, node, value, (layouts[value], layout), present)
                if self.is_late(node, value):
                    late.add((value, layout))
            for value, layout in zip(node.results, strategy.results, strict=True):
                layouts[value] = layout
        for value, layout in late:
            self._static[option] += self._bytes(value, layout)
        for value, layout in layouts.items():
            made.setdefault(self.places[value], []).append(layout)
            kept.setdefault(self.places[value], []).append((value, layout) in late)

    def is_late(self, node: Node, value: int) -> bool:
        """Return whether ``node`` reads an activation after the forward pass."""
        producer = self.graph.producer(value)
        if value in self.graph.storage.staying:
            return False
        return node.part > 0 and producer.part == 0

    def _add_read(
        self, reads: dict[int, _Reads], slot: tuple[int, int], value: int, layout: Layout
    ) -> None:
        node = self.nodes[slot[0]]
        own = reads.setdefault(self.places[value], _Reads())
        own.layouts.setdefault(slot, []).append(layout)
        is_state = value in self.graph.storage.state
        own.part[slot] = node.part if is_state else 0
        own.late[slot] = self.is_late(node, value)
        own.times = max(own.times, self.graph.times(node))

    def _add_reshard(
        self,
        option: int,
        node: Node,
        value: int,
        ends: tuple[Layout, Layout],
        present: set[tuple[int, Layout]],
    ) -> None:
        """Charge the reshard of a value within the cluster, once per layout."""
        source, target = ends
        if source == target or (value, target) in present:
            return
        present.add((value, target))
        info = self.graph.values[value].info
        if info is None or value in self.graph.storage.constants:
            return
        path = self.tables.resharder.path(info.sizes, info.item_bytes, source, target)
        self._time_s[option] += self.graph.times(node) * path.time_s
        self._transient[option] = max(self._transient[option], path.peak_bytes)

    def _bytes(self, value: int, layout: Layout) -> int:
        return tensor_bytes(self.graph.values[value].info, layout, self.tables.mesh)


def _columns(reads: _Reads) -> list[Column]:
    """Return the distinct lists of layouts in which a value is read, in the order of the reads."""
    distinct: dict[tuple[int, tuple[Layout, ...]], bool] = {}
    for slot, layouts in reads.layouts.items():
        key = (reads.part[slot], tuple(layouts))
        distinct[key] = distinct.get(key, False) or reads.late[slot]
    columns: list[Column] = []
    for (part, value), late in distinct.items():
        earlier = [c for c in columns if c.part == part]
        columns.append(Column(value, part, late, _flag_repeated(earlier, value), reads.times))
    return columns


def _flag_repeated(earlier: Iterable[Column], layouts: Sequence[Layout]) -> NDArray[np.bool_]:
    seen = [column.layouts for column in earlier]
    return np.array([any(c[n] == x for c in seen) for n, x in enumerate(layouts)], dtype=np.bool_)
