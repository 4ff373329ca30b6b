"""Throughput of a job with each plan that it has run."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Any

__all__ = ["Throughput"]

_RECENT = 50  # steps
_WARMING = 2  # the first steps of a generation


class Throughput:
    """Times of undisturbed steps, by plan."""

    def __init__(self, samples_per_step: int) -> None:
        self._samples = samples_per_step
        self._times_s: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}
        self._taken = 0

    def begin(self) -> None:
        """Start a generation; its first `_WARMING` steps are ignored."""
        self._taken = 0

    def add(self, plan: str, row: dict[str, Any], *, is_disturbed: bool) -> None:
        """Add a step; ``is_disturbed`` if another generation was starting at the time."""
        self._taken += 1
        if self._taken > _WARMING and not is_disturbed:
            self._times_s.setdefault(plan, deque(maxlen=_RECENT)).append(row["time_s"])
            self._counts[plan] = self._counts.get(plan, 0) + 1

    def step_time_s(self, plan: str) -> float | None:
        """Return the median time of a step in seconds, None without measurements."""
        times = self._times_s.get(plan)
        return statistics.median(times) if times else None

    def samples_per_s(self, plan: str) -> float | None:
        """Return samples per second, None without measurements."""
        time_s = self.step_time_s(plan)
        return self._samples / time_s if time_s else None

    def steps(self, plan: str) -> int:
        """Return the number of measured steps."""
        return self._counts.get(plan, 0)
