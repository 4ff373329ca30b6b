"""Start points of local searches."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensoropt.compiler.comparison.case import Assignment, Case
from tensoropt.compiler.comparison.random_search import random_assignment
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem

__all__ = ["plain_start", "starts"]


def starts(case: Case, seed: int, count: int) -> Iterator[Assignment]:
    """Yield the plain start, if it is allowed, and random assignments: ``count`` in all."""
    plain = plain_start(case)
    if plain is not None:
        yield plain
    for number in range(0 if plain is None else 1, count):
        yield random_assignment(case.problem, seed * count + number)


def plain_start(case: Case) -> Assignment | None:
    """Return data parallelism, or for tables without a model the least movement between nodes.

    Data parallelism needs no resharding. So in tables alone the assignment of least time on edges
    stands for it, the fastest of them. None when it is not allowed.
    """
    if case.tables is not None:
        from tensoropt.compiler.comparison.data_parallel import data_parallel_choice

        return data_parallel_choice(case.problem, case.tables)
    assignment = solve_min_time(_edges_first(case.problem)).assignment
    return assignment if math.isfinite(case.problem.cost(assignment).time) else None


def _edges_first(problem: Problem) -> Problem:
    """Return the problem with times of nodes so small that they only decide between equals."""
    nodes = [NodeTable(node.time_s * 2.0**-20) for node in problem.nodes]
    return Problem(nodes, [EdgeTable(e.a, e.b, e.time_s) for e in problem.edges])
