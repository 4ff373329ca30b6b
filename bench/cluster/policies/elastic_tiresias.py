"""Elastic-Tiresias (Wu et al., arXiv 1909.11985): Tiresias with two additional rules.

Compaction: while more than ten jobs wait, jobs of the lower queue get only their minimum.
Expansion: remaining devices go, step by step, to the job that gains most from its next devices,
including waiting jobs that would start on their minimum. A step goes to a count with a plan. Ties
go to the upper queue first, then to a job that has the devices already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.jobs import State
from cluster.policies.queues import PROMOTE, Queues
from cluster.policies.race import give_out
from cluster.policies.tiresias import LIMITS, served

__all__ = ["PENDING", "ElasticTiresias"]

PENDING = 10
"""Number of jobs that may wait before others are compacted."""


class ElasticTiresias(Queues):
    """The policy with profiles known from the start; the paper measures them as jobs run."""

    elastic = True

    def __init__(self, limits: Sequence[float] = LIMITS, promote: float = PROMOTE) -> None:
        super().__init__(limits, promote)

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        running, taken = served(self.lines, devices)
        if self.lines.count - len(running) > PENDING:
            for state in running:
                if state.line[0] > 0:
                    running[state] = state.job.minimum
        waiting = [(held, taken[line]) for line, held in self.lines.items()]
        give_out(running, devices - sum(running.values()), waiting, _bid)
        self.started(running, now)
        return running


def _bid(state: State, count: int, gain: float) -> tuple[float, ...]:
    return (-gain, state.line[0], state.devices < count)
