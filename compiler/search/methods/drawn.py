"""One random choice as a method: what ``random_search.py`` does, and what that costs."""

from __future__ import annotations

from tensoropt.compiler.search.methods.random_search import random_choice
from tensoropt.compiler.search.methods.result import Case, Found, Limits, found

__all__ = ["search"]


def search(case: Case, limits: Limits) -> Found:
    """Return a random allowed choice, the same for the same seed."""
    return found(case.problem, [random_choice(case.problem, limits.seed)])
