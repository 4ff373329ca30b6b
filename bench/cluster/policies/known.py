"""Our policy with known job durations, which shows the loss from not knowing them."""

from __future__ import annotations

from bisect import bisect_left

from cluster.jobs import State
from cluster.policies.marginal import Marginal

__all__ = ["Known"]


class Known(Marginal):
    """Weights that rise as the remaining work of a job falls below each level."""

    def queue(self, state: State) -> int:
        return bisect_left(self.limits, state.remaining * (1 - 1e-9) - 1e-9)

    def due(self, state: State, now: float) -> float | None:
        queue = self.queue(state)
        if not queue:
            return None
        left = state.remaining - self.limits[queue - 1]
        return max(state.ready, now) + left / state.speed

    def stopped(self, state: State, now: float) -> float | None:
        return None
