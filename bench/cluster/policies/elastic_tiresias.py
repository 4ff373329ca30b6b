"""Elastic-Tiresias (Wu et al., arXiv 1909.11985): Tiresias, and two rules on top.

Compaction: while more than ten jobs wait, those of the lower queue have no more than their minimum.
Expansion: devices left over go, step by step, to the job whose next ones gain most, jobs that wait
and would start on their minimum among them. A step is to a count for which there is a plan. Of
equal gains the upper queue's goes first, then that of a job which has those devices already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.jobs import State
from cluster.policies.queues import PROMOTE, Queues
from cluster.policies.race import give_out
from cluster.policies.tiresias import LIMITS, served

__all__ = ["PENDING", "ElasticTiresias"]

PENDING = 10
"""So many jobs may wait before others are compacted."""


class ElasticTiresias(Queues):
    """Knows profiles from the start, while the paper measures them as jobs run."""

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
