"""Devices that are given out step by step, each to the job that bids best."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from cluster.jobs import State
from cluster.policies.lines import Line

__all__ = ["Bid", "give_out"]

Bid = Callable[[State, int, float], tuple[float, ...]]
"""What a job offers for having so many devices, of which each further one adds so much speed: the
least is served first."""

_Entry = tuple[tuple[float, ...], tuple[float, float, int], State, int, Line, int]


def give_out(
    running: dict[State, int], free: int, waiting: Iterable[tuple[Line, int]], bid: Bid
) -> None:
    """Give out ``free`` devices: to jobs of ``running``, and to those that start on their minimum.

    ``waiting`` are lines, each with the place of the first that does not run. Of a line only one
    job bids at a time. A step that is larger than what is left is passed over. Takes
    O((jobs that run + lines + steps) x log of them).
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
    """Return what a job bids for more than it has."""
    step = state.job.profile.steps.get(count)
    if step is None or step[0] > state.job.most:
        return ()
    return ((bid(state, *step), state.key, state, step[0], [], 0),)


def _started(line: Line, at: int, bid: Bid) -> tuple[_Entry, ...]:
    """Return what a job of a line bids for its minimum."""
    if at >= len(line):
        return ()
    state = line[at][1]
    least, gain = state.job.first
    return ((bid(state, least, gain), state.key, state, least, line, at),)
