"""Tiresias (Gu et al., NSDI 2019): discretised least attained service in two dimensions.

Service is time times devices. The upper queue goes first. A job gets its whole request or nothing.
If the next job does not fit, later jobs that fit may run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from cluster.jobs import State
from cluster.policies.lines import Lines
from cluster.policies.queues import PROMOTE, Queues

__all__ = ["LIMITS", "Tiresias", "served"]

LIMITS = (1e5,)
"""Device seconds in the upper of two queues, suitable for Philly's jobs.

Of 3,250 (the first limit in Tiresias' own simulator), 2e4, 1e5 and 4e5, each policy is within 5% of
its best.
"""


class Tiresias(Queues):
    """The policy with two queues by default."""

    elastic = False

    def __init__(self, limits: Sequence[float] = LIMITS, promote: float = PROMOTE) -> None:
        super().__init__(limits, promote)

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        running, _ = served(self.lines, devices)
        self.started(running, now)
        return running


def served(lines: Lines, devices: int) -> tuple[dict[State, int], dict[tuple[int, ...], int]]:
    """Return the jobs that get their requests, and the number of them at the head of each line.

    Classes are (queue, request, ...). A class with a request above the free devices drops out, so
    this takes O((running jobs + classes) x log classes), regardless of the number of waiting jobs.
    """
    free, running = devices, {}
    heads = [(line[0], held[0][0], line, held) for line, held in lines.items()]
    taken = {line: 0 for _, _, line, _ in heads}
    heapq.heapify(heads)
    while heads and free:
        queue, _, line, held = heads[0]
        if line[1] > free:
            heapq.heappop(heads)
            continue
        at = taken[line]
        running[held[at][1]] = line[1]
        free -= line[1]
        taken[line] = at + 1
        if at + 1 < len(held):
            heapq.heapreplace(heads, (queue, held[at + 1][0], line, held))
        else:
            heapq.heappop(heads)
    return running, taken
