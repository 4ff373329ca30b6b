"""One random choice as a method: what ``random_search.py`` does, and what that costs."""

from __future__ import annotations

from ..random_search import random_choice
from .result import Case, Found, Limits, found

__all__ = ["search"]


def search(case: Case, limits: Limits) -> Found:
    """Return a random allowed choice, the same for the same seed."""
    return found(case.problem, [random_choice(case.problem, limits.seed)])
