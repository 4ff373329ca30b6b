"""Allocation of devices step by step, each to the best bid."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from cluster.jobs import State
from cluster.policies.lines import Line

__all__ = ["Bid", "give_out"]

Bid = Callable[[State, int, float], tuple[float, ...]]
"""Returns the bid of a job for a number of devices and the gain per additional device.

The least bid is served first.
"""

_Entry = tuple[tuple[float, ...], tuple[float, float, int], State, int, Line, int]


def give_out(
    running: dict[State, int], free: int, waiting: Iterable[tuple[Line, int]], bid: Bid
) -> None:
    """Allocate ``free`` devices to jobs of ``running``, and to jobs that start on their minimum.

    ``waiting`` are lines, each with the index of its first job that does not run. Only one job of a
    line bids at a time. A step larger than the remaining devices is skipped. Takes O((running jobs
    + lines + steps) x log of them).
    """
    race = [entry for state, count in running.items() for entry in _grown(state, count, bid)]
    race += [entry for line, at in waiting for entry in _started(line, at, bid)]
    heapq.heapify(race)
    while race and free:
        _, _, state, count, line, at = heapq.heappop(race)
        more = count - running.get(state, 0)
        if more > free:
            continue
        running[state] = count
        free -= more
        for entry in _grown(state, count, bid):
            heapq.heappush(race, entry)
        if line:
            for entry in _started(line, at + 1, bid):
                heapq.heappush(race, entry)


def _grown(state: State, count: int, bid: Bid) -> tuple[_Entry, ...]:
    """Return a job's bid for more devices."""
    step = state.job.profile.steps.get(count)
    if step is None or step[0] > state.job.most:
        return ()
    return ((bid(state, *step), state.key, state, step[0], [], 0),)


def _started(line: Line, at: int, bid: Bid) -> tuple[_Entry, ...]:
    """Return the bid of a waiting job for its minimum."""
    if at >= len(line):
        return ()
    state = line[at][1]
    least, gain = state.job.first
    return ((bid(state, least, gain), state.key, state, least, line, at),)
