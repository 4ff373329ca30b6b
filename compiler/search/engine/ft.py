"""Frontier tracking: the whole (memory, time) frontier by exact variable elimination.

The frontier follows TensorOpt (arXiv 2004.10856), its numbers-only case PaSE (arXiv 2407.04001).
The algorithm is described in ``README.md``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.search._engine import Engine, StoppedError, TooLargeError
from tensoropt.compiler.search.engine.conditioned import (
    TooWideError,
    best_of_parts,
    frontier_of_parts,
)
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError, Status
from tensoropt.compiler.search.problem.problem import (
    NO_LINES,
    Floats,
    Lines,
    NodeTable,
    Problem,
    TableFrontier,
    TablePoint,
    left_out,
    nothing_allowed,
)
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from tensoropt.compiler.search._engine import Frontier

__all__ = ["certified_gap", "elimination_sums", "solve_frontier", "solve_min_time"]

_NO_CONTROL = Control()
_THREADS = 2


def solve_frontier(
    problem: Problem,
    *,
    epsilon: float = 0.0,
    time_limit_s: float | None = None,
    threads: int = _THREADS,
    control: Control = _NO_CONTROL,
    known: Sequence[tuple[float, float]] = (),
    lines: Lines = NO_LINES,
    memory_bytes: float = 0.0,
    in_parts: bool = True,
) -> TableFrontier:
    """Return the Pareto points of a problem in (memory, time), each with an assignment.

    With ``epsilon`` 0 every Pareto point is returned (one assignment each). Otherwise every
    assignment is within a factor ``1 + epsilon`` of a returned point in both objectives. The
    fastest and the leanest point are exact; with a time limit, the leanest may only be within
    ``epsilon``, if that is at most 5%. ``TableFrontier.epsilon`` is the proved bound. It
    exceeds ``epsilon`` only if ``time_limit_s`` ran out first, or if ``memory_bytes`` (0 for a
    quarter of the machine's memory) was too small for tables, bounds and lists of points. In all
    other cases the same arguments give the same points.

    ``control`` has the progress callback and the effect of Ctrl-C. ``known`` has the time and the
    memory of points of other problems. Assignments that they cover may be missing, and the bound
    is about all points together. ``lines`` are valid lower bounds, such as the lines of an earlier
    search of the problem.

    Raises OutOfTimeError past ``control.last_limit_s``. Raises UserError for options out of range,
    if no assignment is allowed (all have an infinite time), and TooWideError if the tables do not
    fit into memory even with nodes fixed one by one, or without ``in_parts``, at once.
    """
    _check_options(epsilon, time_limit_s, threads)
    options: dict[str, Any] = {
        "threads": threads,
        "known": known,
        "lines": lines,
        "budget": memory_bytes,
    }
    if not in_parts:
        return _frontier(problem, _run(problem, epsilon, time_limit_s, control=control, **options))
    return _solve(problem, epsilon, time_limit_s, control, options)


def certified_gap(problem: Problem) -> float:
    """Return the epsilon that the convex hull alone proves, with no gap searched.

    Raises UserError as solve_frontier does.
    """
    return float(_run(problem, 0.0, None, hull_only=True)["hull_epsilon"])


def elimination_sums(problem: Problem) -> float:
    """Return the number of sums for one exact minimum, infinite if its tables are too large.

    Equal parts of the problem count once. Raises UserError if no assignment is allowed.
    """
    try:
        return _engine(problem).work()
    except TooWideError:
        return math.inf


def solve_min_time(problem: Problem, order: Sequence[int] = ()) -> TablePoint:
    """Return an assignment of least time, with any memory.

    Nodes are eliminated in ``order`` if it is given; it lists all nodes. Otherwise the order keeps
    tables small, and a problem with tables too large for memory is solved in parts.

    Raises UserError if no assignment is allowed, and if the tables do not fit into memory.
    """
    if order:
        return _to_point(problem, _engine(problem, numbers_only=True, order=order).min_time())
    return _fastest(problem)


def _solve(
    problem: Problem,
    epsilon: float,
    time_limit_s: float | None,
    control: Control,
    options: dict[str, Any],
    parts: int = 1,
) -> TableFrontier:
    """Return the frontier, in parts if the tables do not fit into memory."""
    try:
        result = _run(problem, epsilon, time_limit_s, control=control, **options)
    except TooWideError as wide:
        return _in_parts(problem, wide, epsilon, time_limit_s, control, options, parts)
    return _frontier(problem, result)


def _frontier(problem: Problem, result: Frontier) -> TableFrontier:
    return TableFrontier(
        _points(problem, result["choices"]),
        result["epsilon"],
        result["interrupted"],
        short_of_memory=result["short_of_memory"],
        time_epsilon=result["time_epsilon"],
        lines=result["lines"],
    )


def _in_parts(
    problem: Problem,
    wide: TooWideError,
    epsilon: float,
    time_limit_s: float | None,
    control: Control,
    options: dict[str, Any],
    parts: int,
) -> TableFrontier:
    def solve(part: Problem, number: int, limit: float | None, own: Control) -> TableFrontier:
        return _solve(part, epsilon, limit, own, options, number)

    ended = _end_of(control)
    found = frontier_of_parts(problem, wide, parts, time_limit_s, control, solve)
    return found if found.whole or parts > 1 else _with_fastest(problem, found, ended)


def _end_of(control: Control) -> float:
    """Return the time of the clock at which even the fastest point is given up."""
    limit_s = control.last_limit_s
    return math.inf if limit_s is None else time.monotonic() + limit_s


def _with_fastest(problem: Problem, frontier: TableFrontier, ended: float) -> TableFrontier:
    """Add the fastest point to a frontier of some parts.

    Return the frontier unchanged if numbers alone do not fit into memory, or past ``ended``.
    """
    try:
        engine = _engine(problem, numbers_only=True)
        assignment = engine.min_time(max(0.0, ended - time.monotonic()))
    except (TooWideError, StoppedError):
        return frontier
    fastest = _to_point(problem, assignment)
    if frontier.points[0].time <= fastest.time:
        return frontier
    leaner = [point for point in frontier.points if point.memory < fastest.memory]
    return replace(frontier, points=[fastest, *leaner])


def _fastest(problem: Problem, parts: int = 1, budget: float = 0.0) -> TablePoint:
    try:
        assignment = _engine(problem, budget=budget, numbers_only=True).min_time()
    except TooWideError as wide:
        return best_of_parts(problem, wide, parts, lambda part, n: _fastest(part, n, budget))
    return _to_point(problem, assignment)


def _to_point(problem: Problem, assignment: NDArray[np.int32] | None) -> TablePoint:
    if assignment is None:
        raise nothing_allowed()
    return problem.cost(assignment)


def _check_options(epsilon: float, time_limit_s: float | None, threads: int) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise UserError(f"search: epsilon is out of range, expected at least 0, got: {epsilon}")
    if time_limit_s is not None and not time_limit_s >= 0:
        raise UserError(
            f"search: time limit is out of range, expected at least 0 seconds, got: {time_limit_s}"
        )
    if threads < 1:
        raise UserError(f"search: threads is out of range, expected at least 1, got: {threads}")


def _engine(
    problem: Problem,
    *,
    always_share: bool = False,
    budget: float = 0.0,
    numbers_only: bool = False,
    order: Sequence[int] = (),
    threads: int = _THREADS,
) -> Engine:
    """Return an engine ready to solve in `budget` bytes (0: a quarter of the machine's memory).

    With `numbers_only` it gets times alone, and can only find the least time.

    Raises TooWideError if the tables would need more memory.
    """
    engine = Engine()
    known: dict[tuple[int, ...], int] = {}  # tables of the same arrays are passed once

    def add_table(table: NodeTable) -> int:
        memory = () if numbers_only else (table.static_bytes, table.transient_bytes)
        key = table.key[:1] if numbers_only else table.key
        if key not in known:
            bounds = map(_or_none, memory) if memory else (None, None)
            known[key] = engine.add_table(table.time_s, *bounds)
        return known[key]

    for node in problem.nodes:
        engine.add_node(add_table(node))
    for edge in problem.edges:
        engine.add_edge(edge.a, edge.b, add_table(edge))
    try:
        feasible = engine.prepare(always_share, budget, numbers_only, list(order), threads)
    except TooLargeError as error:
        raise TooWideError(f"search: {error}", engine.widest()) from None
    if not feasible:
        raise nothing_allowed()
    return engine


def _or_none(memory: Floats) -> Floats | None:
    """Return None for the zeros that replace a memory table left out."""
    return None if left_out(memory) else memory


def _run(
    problem: Problem,
    epsilon: float,
    time_limit_s: float | None,
    threads: int = _THREADS,
    *,
    direct_sums: float = 1e6,
    box_sums: float = 2e7,
    line_sums: float = 1e7,
    hull_only: bool = False,
    control: Control = _NO_CONTROL,
    always_share: bool = False,
    budget: float = 0.0,
    known: Sequence[tuple[float, float]] = (),
    lines: Lines = NO_LINES,
) -> Frontier:
    """Return the engine's result.

    `direct_sums` is the effort for a first try without the hull. `box_sums` is the effort for a gap
    before it is divided. Both are in sums of two points. With a time limit, problems of `line_sums`
    per elimination are bounded by lines first. `always_share` takes the order of elimination that
    meets most equal parts even if it is more work.
    """
    started = time.monotonic()
    engine = _engine(problem, always_share=always_share, budget=budget, threads=threads)
    past = time.monotonic() - started
    limit, last = (_subtract(limit, past) for limit in (time_limit_s, control.last_limit_s))
    forgive, watch = control.on_interrupt == "return", _watcher(control)
    effort = (epsilon, limit, threads, direct_sums, box_sums, line_sums, hull_only)
    ends = (forgive, last, control.grace_s, watch)
    elsewhere = np.array(_best_of(known), dtype=np.float64).reshape(-1, 2)
    try:
        result = engine.frontier(*effort, *ends, elsewhere, np.ascontiguousarray(lines))
    except TooLargeError as error:
        raise TooWideError(f"search: {error}", engine.widest()) from None
    except StoppedError:
        raise OutOfTimeError("search: time was over before a point was found") from None
    if len(result["choices"]) == 0:
        raise nothing_allowed()
    return result


def _best_of(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the pairs of time and memory that are not dominated, sorted by time."""
    best: list[tuple[float, float]] = []
    for time_s, memory_bytes in sorted(pairs):
        if not best or memory_bytes < best[-1][1]:
            best.append((time_s, memory_bytes))
    return best


def _subtract(limit_s: float | None, past_s: float) -> float:
    return math.inf if limit_s is None else max(0.0, limit_s - past_s)


def _watcher(control: Control) -> Callable[..., None] | None:
    watch = control.watch
    return watch and (lambda *status: watch(Status(*status)))


def _points(problem: Problem, assignments: NDArray[np.int32]) -> list[TablePoint]:
    """Cost assignments from the user's tables; drop points that rounding made equal or worse."""
    time, static, transient = problem.costs(assignments)
    memory = static + transient
    points, low = [], math.inf
    for index in np.lexsort((memory, time)):
        if memory[index] < low:
            low = float(memory[index])
            parts = (float(static[index]), float(transient[index]), float(time[index]))
            points.append(TablePoint(low, *parts, assignments[index]))
    return points
