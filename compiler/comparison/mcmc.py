"""Metropolis search (FlexFlow, arXiv 1807.05358, section 6).

A proposal gives one node, drawn uniformly, another option, drawn uniformly. It is accepted
with probability ``min(1, exp(beta * (old time - new time)))``. The fastest assignment seen is
returned.

The paper walks for a given time; here it is a given number of proposals, so that the same seed
gives the same assignment. A proposal costs as many steps as the node has edges.
"""

from __future__ import annotations

import math

import numpy as np

from tensoropt.compiler.comparison.case import Assignment, Case, Limits, collect
from tensoropt.compiler.comparison.neighbours import Neighbours
from tensoropt.compiler.comparison.starts import starts
from tensoropt.compiler.search.problem.problem import Problem, TableFrontier

__all__ = ["PROPOSALS_PER_NODE", "search", "walk"]

PROPOSALS_PER_NODE = 1000

# A change that makes the whole this part slower is accepted with probability 1/e.
_TOLERATED = 1e-3


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return the fastest assignment of a walk from data parallelism; the same for the same seed."""
    proposals = PROPOSALS_PER_NODE * len(case.problem.nodes)
    (start,) = starts(case, limits.seed, 1)
    return collect(case.problem, [walk(case.problem, start, proposals, limits.seed)])


def walk(problem: Problem, start: Assignment, proposals: int, seed: int) -> Assignment:
    """Return the fastest assignment seen in so many proposals; constant time per edge of a node."""
    rng = np.random.default_rng(seed)
    neighbours, assignment = Neighbours(problem), start.copy()
    free = [v for v, node in enumerate(problem.nodes) if len(node.time_s) > 1]
    time = problem.cost(assignment).time
    beta = 1 / (_TOLERATED * time) if time > 0 else math.inf
    best, best_time = assignment.copy(), time
    for node, draw, luck in _proposals(problem, free, proposals, rng):
        gain = neighbours.time_s(node, assignment.item(node), assignment) - neighbours.time_s(
            node, draw, assignment
        )
        if gain < 0 and luck >= math.exp(beta * gain):
            continue
        assignment[node], time = draw, time - gain
        if time < best_time:
            best, best_time = assignment.copy(), time
    return best


def _proposals(
    problem: Problem, free: list[int], count: int, rng: np.random.Generator
) -> list[tuple[int, int, float]]:
    """Draw (node, option, number in [0, 1)) for every proposal."""
    if not free:
        return []
    nodes = rng.choice(free, count)
    sizes = np.array([len(node.time_s) for node in problem.nodes])[nodes]
    draws = (rng.random(count) * sizes).astype(int)
    return list(zip(nodes.tolist(), draws.tolist(), rng.random(count).tolist(), strict=True))
