"""The clock of a search: a target of wall time and a minimum of processor time."""

from __future__ import annotations

import math
import time

__all__ = ["LATE", "LATE_S", "Clock"]

LATE = 0.1
"""Part of its time limit by which a search may end late, for the first point of a mesh."""
LATE_S = 0.7
"""The same in seconds, in addition."""
BUSY = 3.0
"""Largest wall time of a search on a busy machine, in its time limits."""


class Clock:
    """The time left to a search.

    On a busy machine a search gets less of a processor per second. It then goes on until it has
    used ``processor_s``, for at most ``BUSY`` times ``limit_s``.
    """

    def __init__(self, limit_s: float | None, processor_s: float = 0.0) -> None:
        self.limit_s = limit_s
        self.started = time.monotonic()
        self._processor_end = time.process_time() + processor_s

    @property
    def past_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        """Seconds until the end, infinite without a limit."""
        if self.limit_s is None:
            return math.inf
        past_s, owed_s = self.past_s, self._processor_end - time.process_time()
        return max(0.0, self.limit_s - past_s, min(owed_s, BUSY * self.limit_s - past_s))

    @property
    def last_s(self) -> float | None:
        """Seconds until even the first point of a mesh is given up, ``None`` without a limit."""
        if self.limit_s is None:
            return None
        return max(self.limit_s * (1 + LATE) + LATE_S - self.past_s, self.left_s)
