"""Input of a search: cost tables over the options of single nodes and of pairs of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensoropt.compiler.support.errors import UserError

__all__ = [
    "NO_LINES",
    "ROUNDING",
    "DoesNotFitError",
    "EdgeTable",
    "Floats",
    "Lines",
    "NodeTable",
    "NothingAllowedError",
    "Problem",
    "TableFrontier",
    "TablePoint",
    "left_out",
    "nothing_allowed",
]

Floats = NDArray[np.float64]

Lines = NDArray[np.float64]
"""Rows ``a, b, least``: every assignment takes ``a * seconds + b * bytes >= least``."""

ROUNDING = 1e-9
"""Relative tolerance of sums in different orders: tables and programs add costs differently."""

NO_LINES: Lines = np.zeros((0, 3))


class NodeTable:
    """Costs of the K options of one node, each an array of shape [K].

    An infinite time forbids an option. Left out, a memory table is zero. ``key`` equals the keys of
    tables of the same arrays, as long as these live.
    """

    def __init__(
        self,
        time_s: ArrayLike,
        static_bytes: ArrayLike | None = None,
        transient_bytes: ArrayLike | None = None,
    ) -> None:
        self.time_s = _floats(time_s, None)
        self.static_bytes = _floats(static_bytes, self.time_s)
        self.transient_bytes = _floats(transient_bytes, self.time_s)
        self.key = id(self.time_s), id(self.static_bytes), id(self.transient_bytes)


class EdgeTable(NodeTable):
    """Costs of an edge for each pair of options of nodes ``a`` and ``b``: shape [K_a, K_b].

    Several edges may join the same nodes; their times and static bytes add up.
    """

    def __init__(
        self,
        a: int,
        b: int,
        time_s: ArrayLike,
        static_bytes: ArrayLike | None = None,
        transient_bytes: ArrayLike | None = None,
    ) -> None:
        super().__init__(time_s, static_bytes, transient_bytes)
        self.a = a
        self.b = b


@dataclass(frozen=True, eq=False)
class TablePoint:
    """An assignment (an option per node, int32, shape [n]) and its costs: bytes, seconds."""

    memory: float
    static: float
    transient: float
    time: float
    assignment: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TableFrontier:
    """Points sorted by time, none dominated by another.

    Every other assignment is within a factor ``1 + epsilon`` of a point in time and in memory;
    with ``epsilon`` 0 the points are the whole frontier. The first point takes at most ``1 +
    time_epsilon`` of the least time. It is the fastest, and the last point the leanest, unless
    a large problem had a time limit. In a frontier that is not ``whole``, time ran out before
    every part of the problem was searched. Both are then unknown, and ``epsilon`` is infinite
    or for a problem with smaller tables. ``interrupted``: Ctrl-C ended the search.
    ``short_of_memory``: the memory for lists of points ended it, for a part of the problem.
    ``lines`` hold for every assignment; given lines hold as well, and are not repeated.
    """

    points: list[TablePoint]
    epsilon: float
    interrupted: bool = False
    whole: bool = True
    short_of_memory: bool = False
    time_epsilon: float = 0.0
    lines: Lines = field(default_factory=lambda: NO_LINES, repr=False)

    @property
    def time_bound(self) -> float | None:
        """The bound of the first point's time, ``None`` if none is known."""
        return self.time_epsilon if self.whole else None


class Problem:
    """The choice of one option per node, with costs per node and per edge.

    Time and static bytes are sums over nodes and edges; transient bytes are the maximum over them;
    memory is static plus transient bytes. ``nodes[i]`` is the table of node i. A search resolves
    differences down to 2^-52 of the sum of each table's largest cost: forbid by infinity, not by a
    huge number.

    Raises UserError when a table has a wrong shape or a value that is no cost.
    """

    def __init__(self, nodes: Sequence[NodeTable], edges: Sequence[EdgeTable] = ()) -> None:
        self.nodes = list(nodes)
        self.edges = list(edges)
        checked: set[object] = set()
        for index, node in enumerate(self.nodes):
            _check_node(index, node, checked)
        for index, edge in enumerate(self.edges):
            _check_edge(index, edge, self.nodes, checked)

    def cost(self, assignment: ArrayLike) -> TablePoint:
        """Cost an assignment (option per node, shape [n]) from the tables alone."""
        chosen = np.asarray(assignment, dtype=np.int32)
        self._check_choice(chosen)
        time = static = transient = 0.0
        for table, ends in self._uses:
            if len(ends) == 1:  # without arrays, and added in the same order as by costs()
                at = tuple(chosen.item(end) for end in ends[0])
                time += float(table.time_s[at])
                static += float(table.static_bytes[at])
                transient = max(transient, float(table.transient_bytes[at]))
            else:
                many = tuple(chosen[list(axis)] for axis in zip(*ends, strict=True))
                time += float(table.time_s[many].sum())
                static += float(table.static_bytes[many].sum())
                transient = max(transient, float(table.transient_bytes[many].max()))
        return TablePoint(static + transient, static, transient, time, chosen)

    def costs(self, assignments: NDArray[np.int32]) -> tuple[Floats, Floats, Floats]:
        """Return seconds, static and transient bytes [p] of many assignments [p, n]."""
        time, static, transient = (np.zeros(len(assignments)) for _ in range(3))
        for table, at in self._selected(assignments):
            time += table.time_s[at].sum(axis=1)
            if not left_out(table.static_bytes):
                static += table.static_bytes[at].sum(axis=1)
            if not left_out(table.transient_bytes):
                np.maximum(transient, table.transient_bytes[at].max(axis=1), out=transient)
        return time, static, transient

    def _selected(
        self, assignments: NDArray[np.int32]
    ) -> Iterator[tuple[NodeTable, tuple[NDArray[np.int32], ...]]]:
        """Yield each distinct table and, per axis, the chosen options [p, uses]."""
        for table, ends in self._uses:
            yield table, tuple(assignments[:, list(axis)] for axis in zip(*ends, strict=True))

    @cached_property
    def _uses(self) -> list[tuple[NodeTable, list[tuple[int, ...]]]]:
        """Each distinct table, and the nodes that are the axes of each use."""
        uses: dict[object, tuple[NodeTable, list[tuple[int, ...]]]] = {}
        for index, node in enumerate(self.nodes):
            uses.setdefault(node.key, (node, []))[1].append((index,))
        for edge in self.edges:
            uses.setdefault(edge.key, (edge, []))[1].append((edge.a, edge.b))
        return [*uses.values()]

    def _check_choice(self, assignment: NDArray[np.int32]) -> None:
        if assignment.shape != (len(self.nodes),):
            raise UserError(
                f"assignment: wrong shape, expected ({len(self.nodes)},), got: {assignment.shape}"
            )
        sizes = np.array([len(node.time_s) for node in self.nodes])
        for index in np.flatnonzero((assignment < 0) | (assignment >= sizes))[:1]:
            raise UserError(
                f"assignment of node {index}: no such option, "
                f"expected 0 to {sizes[index] - 1}, got: {assignment[index]}"
            )


DOES_NOT_FIT = 3
"""The exit status of a command that finds no plan within the memory limit."""


class DoesNotFitError(UserError):
    """No plan fits the memory limit: of ``memory``, or of the device.

    In a search of one mesh, a plan on another mesh may fit. ``frontier`` has the points, which all
    need too much, and the leanest plan lacks ``lacks_bytes``; None and infinite if not known.
    """

    __module__ = "tensoropt"

    exit_status = DOES_NOT_FIT
    frontier: Any = None
    lacks_bytes: float = math.inf


class NothingAllowedError(UserError):
    """Every assignment has an infinite time."""


def nothing_allowed() -> NothingAllowedError:
    """Return the error of a search in which every assignment has an infinite time."""
    return NothingAllowedError(
        "search: no assignment is allowed, expected one of finite time, got: inf for all"
    )


def left_out(memory: Floats) -> bool:
    """Return whether these zeros stand for memory left out of a table."""
    return memory is _zeros(memory.shape)


@cache
def _zeros(shape: tuple[int, ...]) -> Floats:
    """Return zeros that are not stored, always the same object."""
    return np.broadcast_to(np.zeros(()), shape)


def _floats(values: ArrayLike | None, like: Floats | None) -> Floats:
    """Return contiguous float64 values; for ``None`` zeros in the shape of ``like``."""
    if values is None and like is not None:
        return _zeros(like.shape)
    return np.ascontiguousarray(values, dtype=np.float64)


def _check_node(index: int, node: NodeTable, checked: set[object]) -> None:
    if node.time_s.ndim != 1 or node.time_s.size == 0:
        raise UserError(
            f"node {index}: time_s has a wrong shape, expected one dimension of at least one "
            f"option, got: {node.time_s.shape}"
        )
    if node.key not in checked:
        checked.add(node.key)
        _check_values(f"node {index}", node, node.time_s.shape)


def _check_edge(index: int, edge: EdgeTable, nodes: list[NodeTable], checked: set[object]) -> None:
    a, b = edge.a, edge.b
    for end in (a, b):
        if not 0 <= end < len(nodes):
            raise UserError(
                f"edge {index}: no such node, expected 0 to {len(nodes) - 1}, got: {end}"
            )
    if a == b:
        raise UserError(f"edge {index}: joins a node to itself, expected two nodes, got: {a} twice")
    shape = len(nodes[a].time_s), len(nodes[b].time_s)
    key = edge.key, shape
    if key not in checked:
        checked.add(key)
        _check_values(f"edge {index} from node {a} to node {b}", edge, shape)


def _check_values(where: str, table: NodeTable, shape: tuple[int, ...]) -> None:
    for name in ("time_s", "static_bytes", "transient_bytes"):
        array: Floats = getattr(table, name)
        if array.shape != shape:
            raise UserError(
                f"{where}: {name} has a wrong shape, expected {shape}, got: {array.shape}"
            )
        usable = array >= 0 if name == "time_s" else (array >= 0) & np.isfinite(array)
        if not usable.all():
            want = "seconds, not negative" if name == "time_s" else "finite bytes, not negative"
            at = tuple(int(i) for i in np.argwhere(~usable)[0])
            raise UserError(
                f"{where}: {name}{list(at)} is no cost, expected {want}, got: {array[at]}"
            )
