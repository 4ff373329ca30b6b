"""Relaxation of problems with tables too large for memory: nodes are split, within a time limit.

A node in too many tables is split into two, each with a part of its edges. An option of the node
can be taken for both, so every assignment of the problem is an assignment of this relaxation. The
points of the relaxation, which has smaller tables, are thus lower bounds. Points of the problem
itself are found with the split nodes fixed to options that points of the relaxation take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tensoropt.compiler.search.engine.conditioned import (
    TooWideError,
    best_points,
    with_option,
)
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError
from tensoropt.compiler.search.problem.problem import (
    EdgeTable,
    NodeTable,
    Problem,
    TableFrontier,
    TablePoint,
)
from tensoropt.compiler.support.errors import UserError

__all__ = ["Solve", "frontier_within"]

BYTES = float(2**28)
"""Memory limit for the tables of a relaxation, so that it is solved quickly."""
SHARE = 0.4
"""Fraction of the time for the relaxation."""
TRIES = 6
"""Largest number of ways to fix the split nodes."""

Solve = Callable[[Problem, float | None, Control, float], TableFrontier]
"""Solves a problem within a number of seconds and of bytes; raises TooWideError."""


def frontier_within(
    problem: Problem,
    wide: TooWideError,
    time_limit_s: float,
    control: Control,
    known: Sequence[tuple[float, float]],
    solve: Solve,
) -> TableFrontier | None:
    """Return points of a problem too ``wide`` to be solved, and their bound.

    ``control`` is for the whole problem; each part gets the rest of its last limit.

    The bound is about all points together, ``known`` points included. The frontier is not whole:
    its ends need not be exact. Return ``None`` if no node can be split, or if no assignment is
    found.
    """
    started = time.monotonic()

    def left_s() -> float:
        return max(0.0, time_limit_s - (time.monotonic() - started))

    def in_time(part: Problem, limit_s: float | None, own: Control, most: float) -> TableFrontier:
        return solve(part, limit_s, own.advance(time.monotonic() - started), most)

    solved = _solve_split(problem, wide, SHARE * time_limit_s, control, in_time)
    if solved is None:
        return None
    below, apart = solved
    found: list[TablePoint] = []
    choices = list(_choices(below, apart))
    for number, fixed in enumerate(choices):
        if found and not left_s():
            break
        share = left_s() / (len(choices) - number)
        try:
            found += _solve_fixed(problem, fixed, share, control, in_time)
        except UserError:  # no choice, no time or still too wide
            continue
    if not found:
        return None
    points = best_points(problem, found)
    pairs = [*((point.time, point.memory) for point in points), *known]
    bound = (1 + below.epsilon) * _shortfall(below.points, pairs) - 1
    ended = (below.interrupted, False, below.short_of_memory)
    return TableFrontier(points, bound, *ended, lines=below.lines)


def _solve_split(
    problem: Problem, wide: TooWideError, limit_s: float, control: Control, solve: Solve
) -> tuple[TableFrontier, list[int]] | None:
    """Return the frontier of the first relaxation that fits into memory, and its split nodes."""
    origin = list(range(len(problem.nodes)))  # of each node, new nodes included
    variable, apart = wide.variable, []
    while sum(variable in (edge.a, edge.b) for edge in problem.edges) > 1:
        problem = _split(problem, variable)
        origin.append(origin[variable])
        apart.append(origin[variable])
        try:
            return solve(problem, limit_s, control, BYTES), sorted(set(apart))
        except TooWideError as error:
            variable = error.variable
        except OutOfTimeError:
            return None
    return None


def _split(problem: Problem, variable: int) -> Problem:
    """Move the later half of a node's edges to a new node without costs of its own."""
    own = [n for n, edge in enumerate(problem.edges) if variable in (edge.a, edge.b)]

    def neighbour(number: int) -> int:
        edge = problem.edges[number]
        return edge.b if edge.a == variable else edge.a

    other = len(problem.nodes)
    moved = set(sorted(own, key=neighbour)[len(own) // 2 :])
    edges = [
        _move_end(edge, variable, other) if number in moved else edge
        for number, edge in enumerate(problem.edges)
    ]
    size = len(problem.nodes[variable].time_s)
    return Problem([*problem.nodes, NodeTable(np.zeros(size))], edges)


def _move_end(edge: EdgeTable, variable: int, to: int) -> EdgeTable:
    a, b = (to if end == variable else end for end in (edge.a, edge.b))
    return EdgeTable(a, b, edge.time_s, edge.static_bytes, edge.transient_bytes)


def _choices(below: TableFrontier, apart: Sequence[int]) -> Iterator[dict[int, int]]:
    """Yield the options that points take for the split nodes, both ends first."""
    count = len(below.points)
    places = np.linspace(0, count - 1, min(count, TRIES)).round().astype(int).tolist()
    seen = set()
    for place in [places[0], places[-1], *places[1:-1]]:
        chosen = tuple(int(below.points[place].assignment[node]) for node in apart)
        if chosen not in seen:
            seen.add(chosen)
            yield dict(zip(apart, chosen, strict=True))


def _solve_fixed(
    problem: Problem, fixed: dict[int, int], limit_s: float, control: Control, solve: Solve
) -> list[TablePoint]:
    part = problem
    for node, option in fixed.items():
        part = with_option(part, node, option)
    points = []
    for point in solve(part, limit_s, control, 0.0).points:
        assignment = point.assignment.copy()
        for node, option in fixed.items():
            assignment[node] = option
        points.append(problem.cost(assignment))
    return points


def _shortfall(below: Sequence[TablePoint], pairs: Sequence[tuple[float, float]]) -> float:
    """Return the largest factor by which the best of ``pairs`` is worse than a point."""
    costs = np.maximum(np.array(pairs, dtype=np.float64), np.finfo(float).tiny)
    least = np.maximum([[p.time, p.memory] for p in below], np.finfo(float).tiny)
    return float((costs[None] / least[:, None]).max(axis=2).min(axis=1).max(initial=1.0))
