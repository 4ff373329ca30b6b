"""Problems with tables too large for memory: one node is fixed to each option in turn."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tensoropt.compiler.search.engine.control import Control, OutOfTimeError, Status
from tensoropt.compiler.search.problem.problem import (
    EdgeTable,
    Floats,
    NodeTable,
    Problem,
    TableFrontier,
    TablePoint,
    nothing_allowed,
)
from tensoropt.compiler.support.errors import UserError

__all__ = ["TooWideError", "best_of_parts", "frontier_of_parts"]

MOST_PARTS = 4096


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
    control: Control,
    solve: Callable[[Problem, int, float | None, Control], TableFrontier],
) -> TableFrontier:
    """Unite the frontiers for each option of ``wide.variable``; exact if these are exact.

    ``solve(part, parts, limit, control)`` returns a frontier. The remaining time is shared evenly
    among the remaining parts. ``parts`` is the number of parts that the whole problem already has.
    Past the last limit the remaining parts are left out.

    Raises ``wide`` if that makes too many parts, and OutOfTimeError if the time is over before the
    first part is solved. Raises UserError if no assignment is allowed.
    """
    clock = _Clock(time_limit_s, control)
    found: list[TablePoint] = []
    epsilon, whole, full = 0.0, True, False
    for k, part, number, size in _parts(problem, wide, parts):
        try:
            frontier = solve(part, number, *clock.share(k, size))
        except OutOfTimeError:
            whole = False
            break
        except UserError as error:
            if str(error) != str(nothing_allowed()):
                raise
            continue
        if frontier.interrupted:
            clock.interrupt()
        whole &= frontier.whole
        full |= frontier.short_of_memory
        epsilon = max(epsilon, frontier.epsilon)
        found += [_restore(problem, point, wide.variable, k) for point in frontier.points]
    if not found:
        raise nothing_allowed() if whole else OutOfTimeError("search: no part was solved in time")
    bound = epsilon if whole else math.inf
    return TableFrontier(_best_points(problem, found), bound, clock.interrupted, whole, full)


class _Clock:
    """The remaining time of a whole problem, shared among its parts."""

    def __init__(self, time_limit_s: float | None, control: Control) -> None:
        self.control = control
        self.started = time.monotonic()
        self.limit_s, self.last_s = time_limit_s, control.last_limit_s
        self.interrupted = False

    def interrupt(self) -> None:
        """Restrict the remaining parts to their extremes, if there is grace for these."""
        self.interrupted, self.limit_s = True, 0.0
        grace = self._past() + self.control.grace_s
        self.last_s = grace if self.last_s is None else min(self.last_s, grace)

    def _past(self) -> float:
        return time.monotonic() - self.started

    def share(self, k: int, size: int) -> tuple[float | None, Control]:
        """Return the time limit and the control of part ``k`` of ``size``.

        Raises OutOfTimeError past the last limit: thousands of parts could begin after it.
        """
        past = self._past()
        limit = None if self.limit_s is None else max(0.0, self.limit_s - past) / (size - k)
        whole = replace(self.control, last_limit_s=self.last_s, watch=self._watch(k, size))
        control = whole.advance(past)
        return limit, replace(control, on_interrupt="raise") if self.interrupted else control

    def _watch(self, k: int, size: int) -> Callable[[Status], None] | None:
        watch = self.control.watch
        return watch and (lambda status: watch(replace(status, part=f"{k + 1} of {size}")))


def best_of_parts(
    problem: Problem, wide: TooWideError, parts: int, solve: Callable[[Problem, int], TablePoint]
) -> TablePoint:
    """Return the fastest point over the options of ``wide.variable``; raises the same errors."""

    def only(part: Problem, number: int, limit: float | None, control: Control) -> TableFrontier:
        return TableFrontier([solve(part, number)], 0.0)

    return frontier_of_parts(problem, wide, parts, None, Control(), only).points[0]


def _parts(
    problem: Problem, wide: TooWideError, parts: int
) -> Iterator[tuple[int, Problem, int, int]]:
    """Yield each option, the problem with it fixed, and the numbers of parts and of options."""
    size = len(problem.nodes[wide.variable].time_s)
    if size == 1 or parts * size > MOST_PARTS:
        raise wide
    for k in range(size):
        yield k, _with_option(problem, wide.variable, k), parts * size, size


def _with_option(problem: Problem, variable: int, k: int) -> Problem:
    """Return the problem with option ``k`` as the only option of a node."""
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


def _restore(problem: Problem, point: TablePoint, variable: int, k: int) -> TablePoint:
    assignment = point.assignment.copy()
    assignment[variable] = k
    return problem.cost(assignment)


def _best_points(problem: Problem, points: list[TablePoint]) -> list[TablePoint]:
    """Return the points that are not dominated, up to the rounding errors of a search.

    The engine rounds each entry to the machine epsilon of the sum of the largest entries.
    """
    tables: list[NodeTable] = [*problem.nodes, *problem.edges]
    step = len(tables) * sys.float_info.epsilon
    time_step = step * sum(_largest(table.time_s) for table in tables)
    memory_step = step * (
        sum(_largest(table.static_bytes) for table in tables)
        + max(_largest(table.transient_bytes) for table in tables)
    )
    kept: list[TablePoint] = []
    for point in sorted(points, key=lambda p: (p.time, p.memory)):
        if kept and point.memory >= kept[-1].memory - memory_step:
            continue
        if kept and point.time <= kept[-1].time + time_step:
            kept.pop()
        kept.append(point)
    return kept


def _largest(values: Floats) -> float:
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))
