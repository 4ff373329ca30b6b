"""Frontier tracking (TensorOpt, arXiv 2004.10856) as a method: what ``ft.py`` does."""

from __future__ import annotations

import math

from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.methods.result import Case, Found, Limits

__all__ = ["search"]


def search(case: Case, limits: Limits) -> Found:
    """Return the frontier of ``case`` within ``limits.epsilon``; its fastest point is exact.

    Where time ran out before all of the problem was searched, that need not be so, and there may
    be no bound.
    """
    frontier = solve_frontier(
        case.problem,
        epsilon=limits.epsilon,
        time_limit_s=limits.time_limit_s,
        control=limits.control,
        known=limits.known,
        lines=limits.lines,
        memory_bytes=limits.search_memory_bytes,
    )
    ended = (frontier.interrupted, frontier.short_of_memory)
    epsilon = frontier.epsilon if math.isfinite(frontier.epsilon) else None
    time_epsilon = frontier.time_epsilon if frontier.whole else None
    return Found(frontier.points, epsilon, time_epsilon, *ended, frontier.lines)
