"""Every assignment, of problems that have few: the product of all nodes' options."""

from __future__ import annotations

import math

import numpy as np

from tensoropt.compiler.comparison.case import Assignment, Case, Limits, collect
from tensoropt.compiler.search.problem.problem import Floats, TableFrontier, nothing_allowed
from tensoropt.compiler.support.errors import UserError

__all__ = ["MOST_ASSIGNMENTS", "search"]

MOST_ASSIGNMENTS = 10**7
_PIECE = 1 << 15


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return the exact frontier by costing every assignment, a piece of them at a time.

    Raises :class:`UserError` above :data:`MOST_ASSIGNMENTS` and when no assignment is allowed.
    """
    problem = case.problem
    sizes = [len(node.time_s) for node in problem.nodes]
    count = math.prod(sizes)
    if count > MOST_ASSIGNMENTS:
        raise UserError(
            f"--search exhaustive: too many choices, expected at most {MOST_ASSIGNMENTS}, "
            f"got: {_counted(count)}"
        )
    kept: list[Assignment] = []
    free = [node for node, size in enumerate(sizes) if size > 1]  # NumPy limits the dimensions
    for start in range(0, count, _PIECE):
        numbers = np.arange(start, min(start + _PIECE, count))
        piece = np.zeros((len(numbers), len(sizes)), np.int32)
        if free:
            piece[:, free] = np.stack(np.unravel_index(numbers, [sizes[v] for v in free]), 1)
        time, static, transient = problem.costs(piece)
        kept += [piece[i] for i in _best(time, static + transient)]
    if not kept:
        raise nothing_allowed()
    return collect(problem, kept, epsilon=0.0, time_epsilon=0.0)


def _counted(count: int) -> str:
    return str(count) if count < 10**15 else f"about 10^{len(str(count)) - 1}"


def _best(time: Floats, memory: Floats) -> list[int]:
    """Return the positions of the finite points that no other one beats."""
    order = np.lexsort((memory, time))
    order = order[np.isfinite(time[order])]
    lowest = np.minimum.accumulate(memory[order])
    first = np.append(True, memory[order][1:] < lowest[:-1])[: len(order)]
    return [int(i) for i in order[first]]
