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
start, so devices go only where they do clearly more; and one that runs is not grown before its last
switch has paid for itself.
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
    """``stall_s`` is what a switch costs. ``falls`` is the factor of the weights, ``keep`` how much
    more a job offers for what it has; a switch may cost the part ``loss`` of the time since."""

    elastic = True

    def __init__(
        self,
        stall_s: float,
        *,
        falls: float = 1.1,
        keep: float = 1.5,
        loss: float = 0.02,
        promote: float = PROMOTE,
    ) -> None:
        super().__init__(LEVELS, promote)
        self.weights = [falls**-queue for queue in range(len(LEVELS) + 1)]
        self.keep, self.patience, self.now = keep, stall_s / loss, 0.0

    def line(self, state: State) -> tuple[int, ...]:
        return (self.queue(state), state.job.minimum)

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        running: dict[State, int] = {}
        self.now = now
        give_out(running, devices, [(held, 0) for _, held in self.lines.items()], self._bid)
        self.started(running, now)
        return running

    def _bid(self, state: State, count: int, gain: float) -> tuple[float, ...] | None:
        worth = gain * self.weights[state.line[0]]
        start = count == state.job.minimum
        if start or state.devices >= count:
            return (-worth * self.keep, not start)
        if state.devices and self.now - state.switched < self.patience:
            return None
        return (-worth, True)
