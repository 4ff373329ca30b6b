"""Frontier tracking as a method: what ``ft.py`` does."""

from __future__ import annotations

from ..ft import solve_frontier
from .result import Case, Found, Limits

__all__ = ["search"]


def search(case: Case, limits: Limits) -> Found:
    """Return the frontier of ``case`` within ``limits.epsilon``; its fastest point is exact."""
    frontier = solve_frontier(
        case.problem, epsilon=limits.epsilon, time_limit_s=limits.time_limit_s
    )
    return Found(frontier.points, frontier.epsilon, 0.0)
