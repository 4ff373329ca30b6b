"""The problem with memory as a maximum over moments, for lower bounds by lines.

A moment is an op that runs, or a tensor that is resharded. Its live bytes are a sum of terms of one
or two nodes of the problem, and at most the bytes that are live then in any plan's program.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensoropt.compiler.search._engine import LineBounds, Multipliers
from tensoropt.compiler.search.problem.live_sizes import Part
from tensoropt.compiler.search.problem.problem import Floats, NodeTable, Problem, left_out
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.waiting import Moment, Waits
from tensoropt.compiler.support.identity import Known

__all__ = ["LineBounds", "Multipliers", "relax"]

_Term = tuple[int, int, Floats]
"""Two nodes of the problem and bytes [option, option]; one node, -1, and bytes [option]."""


def relax(tables: MeshTables, waits: Waits | None) -> LineBounds:
    """Return the bounds of the tables of a mesh.

    With ``waits`` the moments are about programs, else about the tables. Linear in the distinct
    tables, and in the live tensors of all moments.
    """
    problem = tables.build()
    bounds = LineBounds([len(node.time_s) for node in problem.nodes])
    for number, node in enumerate(problem.nodes):
        _add(bounds, node, number, -1)
    for edge in problem.edges:
        _add(bounds, edge, edge.a, edge.b)
    for moment in _of_tables(problem) if waits is None else _of_programs(problem, waits):
        bounds.add_moment(moment)
    bounds.connect(_ranks(problem, len(tables.leaders)))
    return bounds


def _add(bounds: LineBounds, table: NodeTable, a: int, b: int) -> None:
    bounds.add_time(a, b, table.time_s)
    if not left_out(table.static_bytes):
        bounds.add_static(a, b, table.static_bytes)


def _of_tables(problem: Problem) -> Iterator[list[_Term]]:
    """Yield a moment for each table with transient bytes."""
    for number, node in enumerate(problem.nodes):
        if not left_out(node.transient_bytes):
            yield [(number, -1, node.transient_bytes)]
    yield from _reshards(problem)


def _reshards(problem: Problem) -> Iterator[list[_Term]]:
    for edge in problem.edges:
        if not left_out(edge.transient_bytes):
            yield [(edge.a, edge.b, edge.transient_bytes)]


def _of_programs(problem: Problem, waits: Waits) -> Iterator[list[_Term]]:
    """Yield the moments of all ops with the other live tensors, and of reshards without."""
    terms = _Terms()
    for moment in waits.moments.values():
        yield terms.list_terms(moment)
    yield from _reshards(problem)


class _Terms:
    """The bytes of parts as arrays over options, computed once for equal parts."""

    def __init__(self) -> None:
        self._bytes = Known()

    def list_terms(self, moment: Moment) -> list[_Term]:
        """Return the terms of a moment, with the first part of each live value."""
        parts: dict[int, Part] = {}
        for part in moment.waiting:
            parts.setdefault(part.value, part)
        return [
            (moment.node, -1, moment.size_bytes),
            *(self._term(part, moment) for part in parts.values()),
        ]

    def _term(self, part: Part, moment: Moment) -> _Term:
        size_bytes = self._bytes.get((part.shape,), lambda: _by_option(part))
        if len(part.nodes) == 2:
            return part.nodes[0], part.nodes[1], size_bytes
        return part.nodes[0], moment.node if size_bytes.ndim == 2 else -1, size_bytes


def _by_option(part: Part) -> Floats:
    """Return the bytes of a part by the options of its nodes, and of the moment if it has one."""
    states, masks = part.shape.size_bytes, part.shape.masks
    if len(masks) == 1:
        return np.ascontiguousarray(states[masks[0].argmax(axis=1)])
    if states.ndim == 2:  # a lower bound for any option of the moment
        states = states.min(axis=1)
    first, last = masks
    return np.ascontiguousarray(states[(first[:, None] & last[None]).argmax(axis=2)])


def _ranks(problem: Problem, leaders: int) -> list[float]:
    """Return the order of a sweep: nodes of the program in its order, copies after their source."""
    ranks = [float(number) for number in range(len(problem.nodes))]
    source: dict[int, float] = {}
    for edge in problem.edges:
        near = min(edge.a, edge.b)
        for node in (edge.a, edge.b):
            if node >= leaders and near < leaders:
                source[node] = min(source.get(node, float(near)), near)
    for edge in problem.edges:  # copies of copies
        for node, other in ((edge.a, edge.b), (edge.b, edge.a)):
            if node >= leaders and node not in source and other in source:
                source[node] = source[other] + 0.25
    for node, rank in source.items():
        ranks[node] = rank + 0.5
    return ranks
