"""Budgets of Hypothesis, which follow the tier of the run.

A test states its full budget, ``@examples(150)``. The profiles scale it: "quick" (`make test`)
draws 15% of it, always the same examples; "check" draws all; and ten times as many with
`TENSOROPT_SWEEP` set. `some` limits long lists of cases in the quick tier, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings

__all__ = ["examples", "load_profile", "some"]

Case = TypeVar("Case")

_FULL = 100  # max_examples of a profile is a percentage
_FEWEST = 5


def load_profile(tier: str) -> None:
    """Load the profile of a tier: "quick", or any other for the full budgets.

    There is no deadline, and drawing may be slow: other work may be on the machine.
    """
    shared = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    nightly = 10 * _FULL if "TENSOROPT_SWEEP" in os.environ else _FULL
    settings.register_profile("quick", shared, max_examples=15, derandomize=True, database=None)
    settings.register_profile("check", shared, max_examples=nightly)
    settings.load_profile("quick" if tier == "quick" else "check")


def examples(full: int) -> settings:
    """Return the settings of a test that draws ``full`` examples in the full tier."""
    scaled = full * settings().max_examples // _FULL
    return settings(max_examples=max(scaled, min(full, _FEWEST)))


def some(cases: Sequence[Case], most: int) -> Sequence[Case]:
    """Return the cases; in the quick tier at most ``most``, evenly spaced, with the first."""
    if settings().max_examples >= _FULL or len(cases) <= most:
        return cases
    return [cases[number * len(cases) // most] for number in range(most)]
