"""The integer program of a problem: costs, bounds and sparse rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensoropt.compiler.comparison.case import Assignment
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem

__all__ = ["Program", "build_program", "count_variables"]

Ints = NDArray[np.int32]

# HiGHS compares with absolute tolerances near 1e-6: the least conceivable time becomes this.
_SCALE = 1e4


@dataclass(frozen=True)
class _Block:
    """The columns of one table: a column for each allowed position ``at`` in it."""

    table: NodeTable
    first: int
    at: tuple[NDArray[np.intp], ...]

    @property
    def columns(self) -> NDArray[np.intp]:
        return self.first + np.arange(len(self.at[0]))


@dataclass(frozen=True)
class Program:
    """Minimise ``cost x``, x >= 0, with rows of ``row_lower <= A x <= row_upper``.

    A is compressed by rows: row ``r`` has ``value[start[r]:start[r+1]]`` at columns ``index[..]``.
    The first ``binaries`` columns are 0 or 1, a column per option of each of ``nodes``.
    """

    nodes: Sequence[_Block]
    binaries: int
    cost: Floats
    row_lower: Floats
    row_upper: Floats
    start: Ints
    index: Ints
    value: Floats

    def decode(self, solution: ArrayLike) -> Assignment:
        """Return the assignment that the binary columns of a solution make."""
        values = np.asarray(solution)
        picked = [b.at[0][int(np.argmax(values[b.columns]))] for b in self.nodes]
        return np.array(picked, dtype=np.int32)


def count_variables(problem: Problem) -> int:
    """Return how many columns the program of ``problem`` has at most."""
    return sum(table.time_s.size for table in [*problem.nodes, *problem.edges])


def build_program(problem: Problem, memory_bytes: float | None = None) -> Program:
    """Return the program of the allowed assignments within ``memory_bytes``: its solutions.

    A limit that no assignment exceeds has no rows. Transient bytes are a maximum: a last column is
    at least those of every node and edge.
    """
    nodes, edges = _blocks(problem)
    blocks = [*nodes, *edges]
    rows = _Rows()
    for block in nodes:
        rows.add(block.columns, 1.0)
        rows.close(1.0, 1.0)
    for block in edges:
        _tie(block, nodes, rows)
    columns = sum(len(block.at[0]) for block in blocks)
    if memory_bytes is not None and memory_bytes < _most_bytes(blocks):
        _limit(blocks, columns, memory_bytes, rows)
    cost = np.concatenate([b.table.time_s[b.at] for b in blocks] + [np.zeros(1)])
    binaries = sum(len(block.at[0]) for block in nodes)
    return Program(nodes, binaries, cost * _scale(problem), *rows.compressed())


def _blocks(problem: Problem) -> tuple[list[_Block], list[_Block]]:
    """Return a block per node and per edge; infinite entries have no column."""
    first, nodes, edges = 0, [], []
    for node in problem.nodes:
        nodes.append(_Block(node, first, np.nonzero(np.isfinite(node.time_s))))
        first += len(nodes[-1].at[0])
    for edge in problem.edges:
        ends = [np.isfinite(problem.nodes[end].time_s) for end in (edge.a, edge.b)]
        allowed = np.isfinite(edge.time_s) & ends[0][:, None] & ends[1]
        edges.append(_Block(edge, first, np.nonzero(allowed)))
        first += len(edges[-1].at[0])
    return nodes, edges


class _Rows:
    """Collects sparse rows in sequence."""

    def __init__(self) -> None:
        self.index: list[NDArray[np.intp]] = []
        self.value: list[Floats] = []
        self.start = [0]
        self.bounds: list[tuple[float, float]] = []
        self.length = 0

    def add(self, columns: NDArray[np.intp], values: Floats | float) -> None:
        """Add entries to the open row."""
        self.index.append(columns)
        self.value.append(np.broadcast_to(np.asarray(values, dtype=np.float64), columns.shape))
        self.length += len(columns)

    def close(self, lower: float, upper: float) -> None:
        """End the open row."""
        self.bounds.append((lower, upper))
        self.start.append(self.length)

    def compressed(self) -> tuple[Floats, Floats, Ints, Ints, Floats]:
        lower, upper = np.array(self.bounds, dtype=np.float64).reshape(-1, 2).T.copy()
        start = np.array(self.start, dtype=np.int32)
        index = np.concatenate([*self.index, np.zeros(0, dtype=np.intp)]).astype(np.int32)
        return lower, upper, start, index, np.concatenate([*self.value, np.zeros(0)])


def _tie(block: _Block, nodes: list[_Block], rows: _Rows) -> None:
    """The columns of an edge with option i of an end add up to that option's."""
    assert isinstance(block.table, EdgeTable)
    for end, at in zip((block.table.a, block.table.b), block.at, strict=True):
        order = np.argsort(at, kind="stable")
        starts = np.searchsorted(at[order], nodes[end].at[0])
        ends = np.searchsorted(at[order], nodes[end].at[0], side="right")
        for column, start, stop in zip(nodes[end].columns, starts, ends, strict=True):
            rows.add(block.columns[order[start:stop]], 1.0)
            rows.add(column[None], -1.0)
            rows.close(0.0, 0.0)


def _most_bytes(blocks: list[_Block]) -> float:
    """Return memory that no assignment exceeds."""
    static = sum(float(b.table.static_bytes[b.at].max(initial=0.0)) for b in blocks)
    transient = (float(b.table.transient_bytes[b.at].max(initial=0.0)) for b in blocks)
    return static + max(transient, default=0.0)


def _limit(blocks: list[_Block], last: int, memory_bytes: float, rows: _Rows) -> None:
    """Static bytes and the last column, all in parts of the limit, stay below 1."""
    scale, transient = 1 / max(memory_bytes, 1.0), np.array([last])
    for block in blocks:
        transient_bytes = block.table.transient_bytes[block.at]
        if transient_bytes.any():
            rows.add(block.columns, transient_bytes * scale)
            rows.add(transient, -1.0)
            rows.close(-math.inf, 0.0)
    for block in blocks:
        rows.add(block.columns, block.table.static_bytes[block.at] * scale)
    rows.add(transient, 1.0)
    rows.close(-math.inf, memory_bytes * scale)


def _scale(problem: Problem) -> float:
    """Return a factor for times that brings a sum of each node's least to about _SCALE."""
    least = [node.time_s[np.isfinite(node.time_s)] for node in problem.nodes]
    total = sum(float(times.min()) for times in least if times.size)
    if total == 0:
        largest = [e.time_s[np.isfinite(e.time_s)] for e in [*problem.nodes, *problem.edges]]
        total = max((float(times.max()) for times in largest if times.size), default=0.0)
    return _SCALE / total if total > 0 else 1.0
