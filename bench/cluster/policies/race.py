"""Devices that are given out step by step, each to the job that bids best."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from cluster.jobs import State
from cluster.policies.lines import Line

__all__ = ["Bid", "give_out"]

Bid = Callable[[State, int, float], tuple[float, ...] | None]
"""What a job offers for having so many devices, of which each further one adds so much speed: the
least is served first; ``None`` is no offer."""

_Entry = tuple[tuple[float, ...], tuple[float, float, int], State, int, Line, int]


def give_out(
    running: dict[State, int], free: int, waiting: Iterable[tuple[Line, int]], bid: Bid
) -> None:
    """Give out ``free`` devices: to jobs of ``running``, and to those that start on their minimum.

    ``waiting`` are lines, each with the place of the first that does not run. Of a line only one
    job bids at a time. A step that is larger than what is left is passed over. Takes
    O((jobs that run + lines + steps) x log of them).
    """
    race: list[_Entry] = []
    for state, count in running.items():
        _grow(race, state, count, bid)
    for line, at in waiting:
        _start(race, line, at, bid)
    heapq.heapify(race)
    while race and free:
        _, _, state, count, line, at = heapq.heappop(race)
        more = count - running.get(state, 0)
        if more > free:
            continue
        running[state] = count
        free -= more
        new: list[_Entry] = []
        _grow(new, state, count, bid)
        if line:
            _start(new, line, at + 1, bid)
        for entry in new:
            heapq.heappush(race, entry)


def _grow(race: list[_Entry], state: State, count: int, bid: Bid) -> None:
    step = state.job.profile.steps.get(count)
    if step is not None:
        offer = bid(state, *step)
        if offer is not None:
            race.append((offer, state.key, state, step[0], [], 0))


def _start(race: list[_Entry], line: Line, at: int, bid: Bid) -> None:
    if at < len(line):
        state = line[at][1]
        least = state.job.minimum
        offer = bid(state, least, state.job.profile.speed[least] / least)
        if offer is not None:
            race.append((offer, state.key, state, least, line, at))
