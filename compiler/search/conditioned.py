"""Problems whose tables do not fit: one node is fixed to each of its configurations in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ..errors import UserError
from .problem import EdgeTable, Floats, Frontier, NodeTable, Point, Problem, no_choice

__all__ = ["TooWideError", "best_of_parts", "frontier_of_parts"]

MOST_PARTS = 4096
RESOLUTION = 2.0**-50  # of the sum of all tables' largest costs


class TooWideError(UserError):
    """The tables need too much memory; fixing ``variable`` makes them smaller."""

    def __init__(self, message: str, variable: int) -> None:
        super().__init__(message)
        self.variable = variable


def frontier_of_parts(
    problem: Problem,
    wide: TooWideError,
    parts: int,
    time_limit_s: float | None,
    solve: Callable[[Problem, int, float | None], tuple[Frontier, bool]],
) -> tuple[Frontier, bool]:
    """Unite the frontiers for each configuration of ``wide.variable``; exact if they are.

    ``solve(part, parts, limit)`` returns a frontier and whether Ctrl-C cut it short; what is left
    of the time is shared evenly among the parts to come. ``parts`` is in how many the problem as a
    whole is divided already.

    Raises ``wide`` when that makes too many parts, and UserError when no choice is allowed.
    """
    end = None if time_limit_s is None else time.monotonic() + time_limit_s
    found: list[Point] = []
    epsilon, cut = 0.0, False
    for k, part, number, left in _parts(problem, wide, parts):
        limit = None if end is None else max(0.0, end - time.monotonic()) / left
        try:
            frontier, now_cut = solve(part, number, 0.0 if cut else limit)
        except UserError as error:
            if str(error) != str(no_choice()):
                raise
            continue
        cut = cut or now_cut
        epsilon = max(epsilon, frontier.epsilon)
        found += [_with(problem, point, wide.variable, k) for point in frontier.points]
    if not found:
        raise no_choice()
    return Frontier(_best(problem, found), epsilon), cut


def best_of_parts(
    problem: Problem, wide: TooWideError, parts: int, solve: Callable[[Problem, int], Point]
) -> Point:
    """Return the fastest point over the configurations of ``wide.variable``; raises likewise."""

    def only(part: Problem, number: int, _: float | None) -> tuple[Frontier, bool]:
        return Frontier([solve(part, number)], 0.0), False

    return frontier_of_parts(problem, wide, parts, None, only)[0].points[0]


def _parts(
    problem: Problem, wide: TooWideError, parts: int
) -> Iterator[tuple[int, Problem, int, int]]:
    """Each configuration, the problem with it fixed, the number of parts, and how many are left."""
    size = len(problem.nodes[wide.variable].time_s)
    if size == 1 or parts * size > MOST_PARTS:
        raise wide
    for k in range(size):
        yield k, _fixed(problem, wide.variable, k), parts * size, size - k


def _fixed(problem: Problem, variable: int, k: int) -> Problem:
    nodes = list(problem.nodes)
    at = slice(k, k + 1)
    node = nodes[variable]
    nodes[variable] = NodeTable(node.time_s[at], node.static_bytes[at], node.transient_bytes[at])
    return Problem(nodes, [_cut(edge, variable, at) for edge in problem.edges])


def _cut(edge: EdgeTable, variable: int, at: slice) -> EdgeTable:
    if variable not in (edge.a, edge.b):
        return edge
    part = (at, slice(None)) if edge.a == variable else (slice(None), at)
    return EdgeTable(
        edge.a, edge.b, edge.time_s[part], edge.static_bytes[part], edge.transient_bytes[part]
    )


def _with(problem: Problem, point: Point, variable: int, k: int) -> Point:
    choice = point.choice.copy()
    choice[variable] = k
    return problem.cost(choice)


def _best(problem: Problem, points: list[Point]) -> list[Point]:
    """The points no other one beats; differences that a search does not resolve are none."""
    tables: list[NodeTable] = [*problem.nodes, *problem.edges]
    time_step = RESOLUTION * sum(_largest(table.time_s) for table in tables)
    memory_step = RESOLUTION * (
        sum(_largest(table.static_bytes) for table in tables)
        + max(_largest(table.transient_bytes) for table in tables)
    )
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.time, p.memory)):
        if kept and point.memory >= kept[-1].memory - memory_step:
            continue
        if kept and point.time <= kept[-1].time + time_step:
            kept.pop()
        kept.append(point)
    return kept


def _largest(values: Floats) -> float:
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))
