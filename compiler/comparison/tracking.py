"""Frontier tracking (TensorOpt, arXiv 2004.10856) as a method: one run of ``engine/ft.py``."""

from __future__ import annotations

from tensoropt.compiler.comparison.case import Case, Limits
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.problem.problem import TableFrontier

__all__ = ["search"]


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return the frontier of ``case`` within ``limits.epsilon``."""
    return solve_frontier(
        case.problem,
        epsilon=limits.epsilon,
        time_limit_s=limits.time_limit_s,
        control=limits.control,
    )
