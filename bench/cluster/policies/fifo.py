"""First in, first out: a job waits for all earlier jobs."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.jobs import State

__all__ = ["Fifo"]


class Fifo:
    """Allocates the request of each job until its end, in order of arrival. O(running jobs)."""

    elastic = False

    def __init__(self) -> None:
        self._running: dict[State, int] = {}
        self._waiting: dict[State, None] = {}

    def arrived(self, state: State, now: float) -> None:
        self._waiting[state] = None

    def ended(self, state: State, now: float) -> None:
        del self._running[state]

    def stopped(self, state: State, now: float) -> float | None:
        return None

    def looked(self, state: State, now: float) -> None:
        return None

    def due(self, state: State, now: float) -> float | None:
        return None

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        free = devices - sum(self._running.values())
        while self._waiting:
            state = next(iter(self._waiting))
            if state.job.request > free:
                break
            del self._waiting[state]
            self._running[state] = state.job.request
            free -= state.job.request
        return self._running
