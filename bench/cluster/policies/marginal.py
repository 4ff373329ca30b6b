"""Our policy: devices go to the jobs that gain most by their profiles, with a bias to young jobs.

The duration of a job is unknown, but the gain of each additional device is known before it runs.
Every device goes, in steps from count to count, to the job with the largest bid: the speed that the
device adds, relative to the speed of the first devices, times a weight. The weight of a job falls
by a constant factor each time that its attained service has quadrupled. Job times are such that
jobs that have run for long will run for long (their Gittins index falls with attained service). But
a weight that fell as fast as that index would give young jobs devices that they use badly, and the
lost work would delay all jobs. A small factor orders jobs of equal gain, which are most of those
that wait to start, and hardly affects others.

A job may shrink to its minimum, the fewest devices on which any plan fits. Under load jobs shrink,
those with the least use of their last devices first; with few jobs they grow.

Hysteresis: jobs bid half as much again for devices that they have, and to start, so that devices
move only for a clear gain.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.jobs import State
from cluster.policies.queues import PROMOTE, Queues
from cluster.policies.race import give_out

__all__ = ["LEVELS", "Marginal"]

LEVELS = tuple(200.0 * 4.0**power for power in range(12))
"""Device seconds at which the weight of a job falls."""


class Marginal(Queues):
    """Policy by marginal gains; ``falls`` scales weights, ``keep`` scales bids for owned devices.

    O((running jobs + classes + steps) x log of them) per event.
    """

    elastic = True

    def __init__(self, falls: float = 1.1, keep: float = 1.5, promote: float = PROMOTE) -> None:
        super().__init__(LEVELS, promote)
        self.weights = [falls**-queue for queue in range(len(LEVELS) + 1)]
        self.keep = keep

    def line(self, state: State) -> tuple[int, ...]:
        return (self.queue(state), state.job.minimum)

    def stopped(self, state: State, now: float) -> float | None:
        """Return when to promote a stopped job, by all service that it attained.

        The first queue is short: otherwise the job would be up again immediately, with all others
        that wait.
        """
        return now + self.promote * state.attained / state.job.request if self.promote else None

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        running: dict[State, int] = {}
        give_out(running, devices, [(held, 0) for _, held in self.lines.items()], self._bid)
        self.started(running, now)
        return running

    def _bid(self, state: State, count: int, gain: float) -> tuple[float, ...]:
        worth = gain * self.weights[state.line[0]]
        start = count == state.job.minimum
        kept = self.keep if start or state.devices >= count else 1.0
        return (-worth * kept, not start)
