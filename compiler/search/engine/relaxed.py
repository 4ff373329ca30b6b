"""Problems whose tables do not fit, and a clock runs: bounded with nodes taken apart.

A node that is in too many tables is taken apart into two, each with a part of its edges. Whatever
is chosen for it can be chosen for both, so the points of what comes of that, which has smaller
tables, bound those of the problem. Its own points are found with those nodes fixed to what the
others chose for them.
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
"""What the tables of a problem that was taken apart may need: it is to be solved in a moment."""
SHARE = 0.4
"""Of the time, for the bound."""
TRIES = 6
"""The most ways to fix the nodes that were taken apart."""
MOST = 200
"""The most nodes that are."""

Solve = Callable[[Problem, float | None, Control, float], TableFrontier]
"""Solves a problem within so many seconds, in so many bytes; raises TooWideError."""


def frontier_within(
    problem: Problem,
    wide: TooWideError,
    time_limit_s: float,
    control: Control,
    known: Sequence[tuple[float, float]],
    solve: Solve,
) -> TableFrontier | None:
    """Return points of a problem too ``wide`` to be solved, and their bound.

    ``control`` is that of the whole problem; each part has what is left of its last limit.

    The bound is that of all points together, those ``known`` included; the frontier is not whole:
    its ends need not be exact. ``None`` where no node could be taken apart, or no choice was found
    for all.
    """
    started = time.monotonic()

    def left_s() -> float:
        return max(0.0, time_limit_s - (time.monotonic() - started))

    def in_time(part: Problem, limit_s: float | None, own: Control, most: float) -> TableFrontier:
        return solve(part, limit_s, own.after(time.monotonic() - started), most)

    solved = _taken_apart(problem, wide, SHARE * time_limit_s, control, in_time)
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
            found += _fixed_to(problem, fixed, share, control, in_time)
        except UserError:  # no choice, no time or still too wide
            continue
    if not found:
        return None
    points = best_points(problem, found)
    pairs = [*((point.time, point.memory) for point in points), *known]
    bound = (1 + below.epsilon) * _shortfall(below.points, pairs) - 1
    ended = (below.interrupted, False, below.short_of_memory)
    return TableFrontier(points, bound, *ended, lines=below.lines)


def _taken_apart(
    problem: Problem, wide: TooWideError, limit_s: float, control: Control, solve: Solve
) -> tuple[TableFrontier, list[int]] | None:
    """Return the frontier with as many nodes taken apart as it needs, and these nodes."""
    origin = list(range(len(problem.nodes)))  # of each node, and of what was taken from it
    variable, apart = wide.variable, []
    for _ in range(MOST):
        if sum(variable in (edge.a, edge.b) for edge in problem.edges) < 2:
            return None
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
    """Give the later half of the edges of a node to another one, which costs nothing by itself."""
    own = [n for n, edge in enumerate(problem.edges) if variable in (edge.a, edge.b)]

    def neighbour(number: int) -> int:
        edge = problem.edges[number]
        return edge.b if edge.a == variable else edge.a

    other = len(problem.nodes)
    moved = set(sorted(own, key=neighbour)[len(own) // 2 :])
    edges = [
        _moved(edge, variable, other) if number in moved else edge
        for number, edge in enumerate(problem.edges)
    ]
    size = len(problem.nodes[variable].time_s)
    return Problem([*problem.nodes, NodeTable(np.zeros(size))], edges)


def _moved(edge: EdgeTable, variable: int, to: int) -> EdgeTable:
    a, b = (to if end == variable else end for end in (edge.a, edge.b))
    return EdgeTable(a, b, edge.time_s, edge.static_bytes, edge.transient_bytes)


def _choices(below: TableFrontier, apart: Sequence[int]) -> Iterator[dict[int, int]]:
    """Yield what points choose for the nodes that were taken apart, those of both ends first."""
    count = len(below.points)
    places = np.linspace(0, count - 1, min(count, TRIES)).round().astype(int).tolist()
    seen = set()
    for place in [places[0], places[-1], *places[1:-1]]:
        chosen = tuple(int(below.points[place].assignment[node]) for node in apart)
        if chosen not in seen:
            seen.add(chosen)
            yield dict(zip(apart, chosen, strict=True))


def _fixed_to(
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
    """Return by which factor the best of pairs of time and memory is worse than any point."""
    costs = np.maximum(np.array(pairs, dtype=np.float64), np.finfo(float).tiny)
    least = np.maximum([[p.time, p.memory] for p in below], np.finfo(float).tiny)
    return float((costs[None] / least[:, None]).max(axis=2).min(axis=1).max(initial=1.0))
