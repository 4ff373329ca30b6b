"""Tiresias (Gu et al., NSDI 2019): discretised least attained service in two dimensions.

Service is time times devices. The upper queue goes first. A job gets all the devices that it asks
for, or none; where the next does not fit, those behind it that do may run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from cluster.jobs import State
from cluster.policies.lines import Lines
from cluster.policies.queues import PROMOTE, Queues

__all__ = ["LIMITS", "Tiresias", "served"]

LIMITS = (1e5,)
"""Device seconds in the upper of two queues: what suits Philly's jobs. Of 3,250 (the first limit in
Tiresias' own simulator), 2e4, 1e5 and 4e5 each policy is within 5% of its best."""


class Tiresias(Queues):
    """Two queues unless told otherwise."""

    elastic = False

    def __init__(self, limits: Sequence[float] = LIMITS, promote: float = PROMOTE) -> None:
        super().__init__(limits, promote)

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        running, _ = served(self.lines, devices)
        self.started(running, now)
        return running


def served(lines: Lines, devices: int) -> tuple[dict[State, int], dict[tuple[int, ...], int]]:
    """Return who has what it asks for, and how many that are of each line: its first ones.

    Classes are (queue, request, ...). A class that asks for more than is left is out of the race,
    so this takes O((jobs that run + classes) x log classes), however many wait.
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
