"""Cuts of a sequence of operations into parts of about equal time, where little passes."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

__all__ = ["cut_evenly", "least_slowest_s"]

_SLACK = 0.002
"""Time of the slowest part above the least possible, for cuts where less passes."""


def cut_evenly(
    times_s: Sequence[float],
    passing_bytes: Sequence[int],
    parts: int,
    lead_s: Sequence[float] | None = None,
    sent_s: Sequence[float] | None = None,
) -> list[int]:
    """Return the first position of each part but the first.

    ``passing_bytes`` has the bytes that pass each position, from the positions before it. No part
    is empty: there are at least ``parts`` positions. A part that begins at a position takes
    ``lead_s`` more time, which grows from position to position, by no more than their times. A cut
    at a position takes ``sent_s``, at the same time as all parts. The slowest part or cut takes at
    most 0.2% more time than in the best cuts. Among these the least bytes pass. ``O(n log n + n
    parts)``.
    """
    if not 1 <= parts <= len(times_s):
        raise ValueError(f"expected 1 to {len(times_s)} parts, got: {parts}")
    until_s = [0.0, *itertools.accumulate(times_s)]
    leads_s = [0.0] * len(times_s) if lead_s is None else lead_s
    from_s = [time_s - lead_s for time_s, lead_s in zip(until_s, [*leads_s, 0.0], strict=True)]
    cut_s = [*([0.0] * len(times_s) if sent_s is None else sent_s), 0.0]
    most_s = _least_slowest_s(from_s, until_s, cut_s, parts) * (1 + _SLACK)
    return _cheapest(from_s, until_s, cut_s, passing_bytes, parts, most_s)


def least_slowest_s(times_s: Sequence[float], parts: int) -> float:
    """Return the least time of the slowest of at most ``parts`` parts, over all cuts."""
    until_s = [0.0, *itertools.accumulate(times_s)]
    return _least_slowest_s(until_s, until_s, [0.0] * len(until_s), min(parts, len(times_s)))


def _least_slowest_s(
    from_s: Sequence[float], until_s: Sequence[float], cut_s: Sequence[float], parts: int
) -> float:
    """Return the least time of the slowest part or cut, nearly: of ``until_s`` less ``from_s``."""
    low_s, high_s = 0.0, max(until_s[-1], *cut_s)
    for _ in range(60):
        middle_s = (low_s + high_s) / 2
        if _fits(from_s, until_s, cut_s, parts, middle_s):
            high_s = middle_s
        else:
            low_s = middle_s
    return high_s


def _fits(
    from_s: Sequence[float],
    until_s: Sequence[float],
    cut_s: Sequence[float],
    parts: int,
    most_s: float,
) -> bool:
    """Return whether ``parts`` parts and cuts of at most ``most_s`` have all positions.

    More cuts only make parts shorter, so parts as long as possible decide.
    """
    end = len(until_s) - 1
    if sum(own <= most_s for own in cut_s[1:end]) < parts - 1:
        return False
    last, start = [0] * (end + 1), 0  # the last cut that fits, up to each position
    for at in range(1, end + 1):
        last[at] = at if cut_s[at] <= most_s else last[at - 1]
    for _ in range(parts):
        start = max(last[bisect_right(until_s, from_s[start] + most_s) - 1], start)
        if start == end:
            return True
    return False


def _cheapest(
    from_s: Sequence[float],
    until_s: Sequence[float],
    cut_s: Sequence[float],
    passing_bytes: Sequence[int],
    parts: int,
    most_s: float,
) -> list[int]:
    """Return the cuts at which the least bytes pass, with parts and cuts of at most ``most_s``."""
    count = len(until_s) - 1
    infinite = float("inf")
    cost: list[float] = [0.0, *[infinite] * count]
    before: list[list[int]] = []
    for part in range(parts):
        found, came = [infinite] * (count + 1), [0] * (count + 1)
        window: deque[int] = deque()
        for end in range(part + 1, count + 1):
            start = end - 1
            while window and cost[window[-1]] >= cost[start]:
                window.pop()
            window.append(start)
            while until_s[end] - from_s[window[0]] > most_s and len(window) > 1:
                window.popleft()
            fits = max(until_s[end] - from_s[window[0]], cut_s[end]) <= most_s
            if fits and cost[window[0]] < infinite:
                found[end] = cost[window[0]] + (passing_bytes[end] if end < count else 0)
                came[end] = window[0]
        cost = found
        before.append(came)
    cuts, end = [], count
    for came in reversed(before[1:]):
        end = came[end]
        cuts.append(end)
    return cuts[::-1]
