"""Frontier tracking (TensorOpt, arXiv 2004.10856) as a method: what ``ft.py`` does."""

from __future__ import annotations

from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.methods.result import Case, Found, Limits

__all__ = ["search"]


def search(case: Case, limits: Limits) -> Found:
    """Return the frontier of ``case`` within ``limits.epsilon``; its fastest point is exact.

    Neither holds where time ran out before all of the problem was searched.
    """
    frontier = solve_frontier(
        case.problem,
        epsilon=limits.epsilon,
        time_limit_s=limits.time_limit_s,
        control=limits.control,
        known=limits.known,
        memory_bytes=limits.search_memory_bytes,
    )
    ended = (frontier.interrupted, frontier.short_of_memory)
    if not frontier.whole:
        return Found(frontier.points, None, None, *ended)
    return Found(frontier.points, frontier.epsilon, 0.0, *ended)
