"""Queues by attained service, as in Tiresias (Gu et al., NSDI 2019, section 3.2)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from cluster.jobs import State
from cluster.policies.lines import Lines

__all__ = ["PROMOTE", "Queues"]

PROMOTE = 8.0
"""PROMOTEKNOB: a stopped job is promoted after waiting for this multiple of its run time."""


class Queues:
    """Jobs begin in queue 0 and fall into the next at each of ``limits``, in device seconds.

    Within a queue, jobs are ordered by start, then by arrival. ``promote`` 0 disables promotion.
    """

    def __init__(self, limits: Sequence[float], promote: float = PROMOTE) -> None:
        self.limits, self.promote = limits, promote
        self.lines = Lines()

    def queue(self, state: State) -> int:
        """Return the number of a job's queue; at a limit it is the next queue."""
        return bisect_right(self.limits, state.owed * (1 + 1e-9) + 1e-9)

    def line(self, state: State) -> tuple[int, ...]:
        """Return the class of a job, its queue first: jobs of a class are equal for the policy."""
        return (self.queue(state), state.job.request, state.job.minimum)

    def arrived(self, state: State, now: float) -> None:
        state.key = (math.inf, state.job.arrival_s, state.job.index)
        self.lines.add(state, self.line(state))

    def ended(self, state: State, now: float) -> None:
        self.lines.remove(state)

    def stopped(self, state: State, now: float) -> float | None:
        """Return when a stopped job has waited long enough to be promoted."""
        return now + self.promote * state.owed / state.job.request if self.promote else None

    def due(self, state: State, now: float) -> float | None:
        """Return when a running job falls to the next queue."""
        queue = self.queue(state)
        if queue == len(self.limits):
            return None
        return max(state.ready, now) + (self.limits[queue] - state.owed) / state.devices

    def looked(self, state: State, now: float) -> None:
        """Move a job to a lower queue, or promote it after its wait."""
        if not state.devices:
            state.credit = state.attained
        self._again(state)

    def started(self, running: Mapping[State, int], now: float) -> None:
        """Order jobs that start now by their start."""
        for state in running:
            if state.key[0] == math.inf:
                self.lines.remove(state)
                state.key = (now, *state.key[1:])
                self.lines.add(state, state.line)

    def _again(self, state: State) -> None:
        self.lines.remove(state)
        self.lines.add(state, self.line(state))
