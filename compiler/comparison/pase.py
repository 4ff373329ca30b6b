"""PaSE: the least time by dynamic programming over dependent sets.

arXiv 2407.04001, section III.B. Vertices are taken one by one. The table of a vertex holds, for
every assignment of the vertices that come later and still matter to it (its dependent set), the
least time of all that it settles.

With n vertices of at most K options and dependent sets of at most M vertices: O(n K^(M+1))
time and O(n K^M) memory, as each table is kept for decoding; O(n^2 M) to put them in order. PaSE's
order is an order of elimination, which the engine takes. The breadth-first order is followed here:
its tables may be separate and still be carried on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.compiler.comparison.case import Assignment, Case, Limits, collect
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.problem.problem import (
    Floats,
    Problem,
    TableFrontier,
    nothing_allowed,
)
from tensoropt.compiler.support.errors import UserError

__all__ = ["MOST_BYTES", "breadth_first", "generated_sequence", "search", "search_breadth_first"]

MOST_BYTES = 2 << 30
_PIECE_CELLS = 1 << 21

Near = list[set[int]]
Factor = tuple[tuple[int, ...], Floats]


@dataclass
class _Step:
    """A vertex, its dependent set in order, and the tables that are added up for it."""

    vertex: int
    scope: tuple[int, ...]
    factors: list[Factor] = field(default_factory=list)


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return an assignment of least time, in the order of PaSE's Fig. 3 (smallest dependent set
    first).

    Raises :class:`UserError` when its tables would take more than :data:`MOST_BYTES`.
    """
    problem, near = case.problem, _near(case.problem)
    order = generated_sequence(near)
    _check_size("pase", problem, _dependent_sets(near, order))
    return collect(problem, [solve_min_time(problem, order).assignment], time_epsilon=0.0)


def search_breadth_first(case: Case, limits: Limits) -> TableFrontier:
    """Return an assignment of least time in breadth-first order, as PaSE's first recurrence takes
    it.

    There the dependent set of a vertex is every later neighbour of any earlier vertex.
    """
    near = _near(case.problem)
    steps = _boundaries(near, breadth_first(near))
    return _solve(case.problem, "pase-bfs", steps)


def generated_sequence(near: Near) -> list[int]:
    """Return the vertices in PaSE's order: the one of smallest dependent set next."""
    dependent = {vertex: set(others) for vertex, others in enumerate(near)}
    order = []
    while dependent:
        vertex = min(dependent, key=lambda v: len(dependent[v]))
        joined = dependent.pop(vertex)
        for other in joined:
            dependent[other] = (dependent[other] | joined) - {vertex, other}
        order.append(vertex)
    return order


def breadth_first(near: Near) -> list[int]:
    """Return the vertices in breadth-first order from the first one of each part."""
    seen: dict[int, None] = {}
    for root in range(len(near)):
        queue = deque([root] if root not in seen else [])
        while queue:
            vertex = queue.popleft()
            if vertex not in seen:
                seen[vertex] = None
                queue.extend(sorted(near[vertex] - seen.keys()))
    return list(seen)


def _near(problem: Problem) -> Near:
    """Return the neighbours of each vertex; one without an assignment matters to none."""
    near: Near = [set() for _ in problem.nodes]
    free = [len(node.time_s) > 1 for node in problem.nodes]
    for edge in problem.edges:
        if not (free[edge.a] and free[edge.b]):
            continue
        near[edge.a].add(edge.b)
        near[edge.b].add(edge.a)
    return near


def _dependent_sets(near: Near, order: Sequence[int]) -> list[_Step]:
    """Return the steps; a scope holds the later vertices that are reached through earlier ones."""
    left = {vertex: set(others) for vertex, others in enumerate(near)}
    steps = []
    for vertex in order:
        joined = left.pop(vertex)
        for other in joined:
            left[other] = (left[other] | joined) - {vertex, other}
        steps.append(_Step(vertex, tuple(sorted(joined))))
    return steps


def _boundaries(near: Near, order: Sequence[int]) -> list[_Step]:
    """Return the steps: a scope has all later neighbours of the vertices taken so far."""
    boundary: set[int] = set()
    done: set[int] = set()
    steps = []
    for vertex in order:
        done.add(vertex)
        boundary = (boundary | near[vertex]) - done
        steps.append(_Step(vertex, tuple(sorted(boundary))))
    return steps


def _solve(problem: Problem, name: str, steps: list[_Step]) -> TableFrontier:
    """Run the steps, each with the table of the one before."""
    _check_size(name, problem, steps)
    sizes = [len(node.time_s) for node in problem.nodes]
    total = _run(steps, sizes, _factors(problem))
    if not math.isfinite(total):
        raise nothing_allowed()
    return collect(problem, [_decoded(steps, len(sizes))], time_epsilon=0.0)


def _factors(problem: Problem) -> list[Factor]:
    """Return the tables of nodes and edges, without the dimensions that have a single entry."""
    factors: list[Factor] = [((v,), node.time_s) for v, node in enumerate(problem.nodes)]
    for edge in problem.edges:
        ends = zip((edge.a, edge.b), edge.time_s.shape, strict=True)
        scope = tuple(end for end, count in ends if count > 1) or (edge.a,)
        table = edge.time_s if len(scope) == 2 else edge.time_s.reshape(-1)
        factors.append((scope, table))
    return factors


def _run(steps: list[_Step], sizes: list[int], factors: list[Factor]) -> float:
    """Give each table to the first step that settles a vertex of it; return the least total."""
    position = {step.vertex: number for number, step in enumerate(steps)}
    for factor in factors:
        steps[min(position[v] for v in factor[0])].factors.append(factor)
    table: Floats = np.zeros(())
    for number, step in enumerate(steps):
        if number > 0:
            step.factors.append((steps[number - 1].scope, table))
        table = _least(step, sizes)
    return float(table)


def _check_size(name: str, problem: Problem, steps: list[_Step]) -> None:
    """Refuse tables that would not fit, before any is made."""
    sizes = [len(node.time_s) for node in problem.nodes]
    widest = max(steps, key=lambda step: _cells(step, sizes), default=None)
    need = 8 * sum(_cells(step, sizes) for step in steps)
    if widest is not None and need > MOST_BYTES:
        raise UserError(
            f"--search {name}: the tables need about {need / 2**30:.3g} GiB (the widest has "
            f"{len(widest.scope)} dimensions and {_cells(widest, sizes):.3g} cells), "
            f"expected at most {MOST_BYTES / 2**30:g} GiB"
        )


def _cells(step: _Step, sizes: list[int]) -> int:
    return math.prod(sizes[v] for v in step.scope)


def _least(step: _Step, sizes: list[int]) -> Floats:
    """Return, over the dependent set, the sum of the step's tables minimised over its vertex."""
    axes = (step.vertex, *step.scope)
    views = [_spread(factor, axes) for factor in step.factors]
    count = sizes[step.vertex]
    piece = max(1, _PIECE_CELLS // _cells(step, sizes))
    least = np.full([sizes[v] for v in step.scope], np.inf)
    for start in range(0, count, piece):
        total: Floats = np.zeros(())
        for view in views:
            total = total + (view[start : start + piece] if len(view) == count else view)
        np.minimum(least, total.min(axis=0), out=least)
    return least


def _spread(factor: Factor, axes: tuple[int, ...]) -> Floats:
    """Return a table with its dimensions in the order of ``axes``, 1 where it has none."""
    scope, table = factor
    order = sorted(range(len(scope)), key=lambda dim: axes.index(scope[dim]))
    sizes = {scope[dim]: table.shape[dim] for dim in order}
    return table.transpose(order).reshape([sizes.get(v, 1) for v in axes])


def _decoded(steps: Sequence[_Step], count: int) -> Assignment:
    """Return the assignment of the least total: last vertex first, its tables added up again."""
    assignment = np.zeros(count, dtype=np.int32)
    for step in reversed(steps):
        times: Floats = np.zeros(())
        for scope, table in step.factors:
            at = tuple(slice(None) if v == step.vertex else assignment[v] for v in scope)
            times = times + table[at]
        assignment[step.vertex] = int(np.argmin(times))
    return assignment
