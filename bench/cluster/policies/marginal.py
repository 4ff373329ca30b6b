"""Ours: devices go where the profile says that they do most, with a lean towards young jobs.

Nobody knows how long a job will take, but what each further device adds is known before it ever
ran. So every device is given, in steps from count to count, to the job in which it adds most: the
speed that it adds, relative to that of the first devices, times a weight. The weight of a job falls
by a constant factor each time that it has attained four times as much service. Times of jobs are
such that who has run for long will run for long (the Gittins index of such times falls with what
is attained), but a weight that fell as fast as that index would give young jobs devices that they
use badly, and all would wait longer for the work that is lost. A small factor orders jobs of equal
use, which are most of those that wait to start, and hardly disturbs others.

A job may have no more than its minimum, the fewest devices on which any plan fits, so under load
jobs shrink by themselves, those that use their last devices worst first; with few jobs they grow.

Hysteresis: a job that has grown offers half as much again for what it has, as does one that would
start, so devices move only to where they do clearly more.
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
    """``falls`` is the factor of the weights, ``keep`` how much more a job offers for what it has.

    O((jobs that run + classes + steps) x log of them) per event.
    """

    elastic = True

    def __init__(self, falls: float = 1.1, keep: float = 1.5, promote: float = PROMOTE) -> None:
        super().__init__(LEVELS, promote)
        self.weights = [falls**-queue for queue in range(len(LEVELS) + 1)]
        self.keep = keep

    def line(self, state: State) -> tuple[int, ...]:
        return (self.queue(state), state.job.minimum)

    def stopped(self, state: State, now: float) -> float | None:
        """Count all that a job had run: the first queue is short, and it would be up again at once,
        with all others that wait."""
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
