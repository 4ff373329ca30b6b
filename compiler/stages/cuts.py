"""Cuts of a sequence of operations into parts of about equal time, where little passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.compiler.stages.order import Floats, Ints

__all__ = ["cut_evenly", "cut_within", "least_slowest_s"]

_SLACK = 0.0019
"""Time of the slowest part above the least possible, for cuts where less passes."""

_CLOSE = 1e-4
"""Relative error of the least time of the slowest part."""

Times = Sequence[float] | Floats
"""A time for each position."""


def cut_evenly(
    times_s: Sequence[Times],
    passing_bytes: Sequence[int],
    lead_s: Sequence[Times] | None = None,
    sent_s: Sequence[Times] | None = None,
    needed: Sequence[int] | None = None,
    given: Sequence[int] = (),
) -> list[int]:
    """Return the first position of each part but the first.

    Each part has a row of ``times_s``: the times of all positions, should they be in that part.
    ``passing_bytes`` has the bytes that pass each position, from the positions before it. Each part
    has one of the positions ``needed``, by default any position; these are no fewer than the parts.
    A part that begins at a position takes ``lead_s`` more time, which grows from position to
    position, by no more than their times. The cut after a part takes ``sent_s``, at the
    same time as all parts. Some cuts may be ``given``, with a needed position between any two. The
    slowest part or cut takes at most 0.2% more time than in the best cuts. Among these the least
    bytes pass. ``O(n parts)``.
    """
    parts, count = len(times_s), len(passing_bytes)
    most = count if needed is None else len(needed)
    if not 1 <= parts <= most:
        raise ValueError(f"expected 1 to {most} parts, got: {parts}")
    zeros = [np.zeros(count)] * parts
    rows = _rows(times_s, lead_s or zeros, sent_s or zeros, zeros)
    return _cut(rows, passing_bytes, _Begins.read(count, needed, given))


def cut_within(
    times_s: Sequence[Times],
    passing_bytes: Sequence[int],
    room: Sequence[Times],
    needed: Sequence[int] | None = None,
) -> list[int] | None:
    """Return cuts like :func:`cut_evenly` in which the positions of each part have room.

    They take their share of the row of ``room`` of that part, which has 1 for all of them. Returns
    ``None`` if no cuts have room.
    """
    count = len(passing_bytes)
    zeros, begins = [np.zeros(count)] * len(times_s), _Begins.read(count, needed)
    rows = _rows(times_s, zeros, zeros, room)
    return _cut(rows, passing_bytes, begins) if _fits(rows, begins, np.inf) else None


def least_slowest_s(times_s: Times, parts: int) -> float:
    """Return a bound below the slowest of at most ``parts`` parts, over all cuts; a close one."""
    row = _Row.read(times_s, *[np.zeros(len(times_s))] * 3)
    low_s, _ = _slowest_s([row] * min(parts, len(times_s)), _Begins.read(len(times_s)))
    return low_s


def _rows(*columns: Sequence[Times]) -> list[_Row]:
    """Return the rows of all parts; equal ones are one object."""
    given = [*zip(*columns, strict=True)]
    known = {tuple(map(id, own)): _Row.read(*own) for own in given}
    return [known[tuple(map(id, own))] for own in given]


@dataclass(frozen=True)
class _Begins:
    """The positions at which a part with a certain end may begin.

    ``earliest`` has the last given cut before each end. From ``latest`` on there is no needed
    position; it is -1 if there is none at all. Ends begin at 1.
    """

    earliest: Ints
    latest: Ints

    @classmethod
    def read(
        cls, count: int, needed: Sequence[int] | None = None, given: Sequence[int] = ()
    ) -> _Begins:
        ends = np.arange(1, count + 1)
        cuts = np.array([0, *given])
        earliest = cuts[np.searchsorted(cuts, ends) - 1]
        if needed is None:
            return cls(earliest, ends - 1)
        positions = np.array([-1, *needed])
        return cls(earliest, positions[np.searchsorted(positions, ends) - 1])


def _cut(rows: Sequence[_Row], passing_bytes: Sequence[int], begins: _Begins) -> list[int]:
    _, high_s = _slowest_s(rows, begins)
    return _cheapest(rows, passing_bytes, begins, high_s * (1 + _SLACK))


@dataclass(frozen=True)
class _Row:
    """The times of a part: between positions it takes ``until_s`` of its end less ``from_s``.

    A cut at its end takes ``cut_s``. Positions until its end less those before it take ``room``.
    """

    from_s: Floats
    until_s: Floats
    cut_s: Floats
    room: Floats

    @classmethod
    def read(cls, times_s: Times, lead_s: Times, sent_s: Times, room: Times) -> _Row:
        until_s = np.concatenate([[0.0], np.cumsum(times_s)])
        leads_s, cut_s = (np.append(own, 0.0) for own in (lead_s, sent_s))
        return cls(until_s - leads_s, until_s, cut_s, np.concatenate([[0.0], np.cumsum(room)]))

    def first_beginnings(self, most_s: float, earliest: Ints) -> list[int]:
        """Return the first beginning of a part of at most ``most_s``, for each end of the part."""
        by_time = np.searchsorted(self.from_s, self.until_s - most_s)
        by_room = np.searchsorted(self.room, self.room - 1 - _CLOSE)
        found = np.maximum(by_time, by_room)
        found[1:] = np.maximum(found[1:], earliest)
        begins: list[int] = found.tolist()
        return begins


def _slowest_s(rows: Sequence[_Row], begins: _Begins) -> tuple[float, float]:
    """Return a lower and an upper bound on the time of the slowest part or cut, close together."""
    distinct = {id(own): own for own in rows}.values()
    least_s = np.min([np.diff(own.until_s) for own in distinct], axis=0)
    low_s = float(least_s.sum()) / len(rows)
    high_s = float(
        max(max(own.until_s[-1] - own.from_s.min(), own.cut_s.max()) for own in distinct)
    )
    step = 0.01  # most cuts are nearly even
    while low_s and (next_s := low_s * (1 + step)) < high_s:
        if _fits(rows, begins, next_s):
            high_s = next_s
            break
        low_s, step = next_s, 2 * step
    while high_s - low_s > _CLOSE * high_s:
        middle_s = (low_s + high_s) / 2
        if _fits(rows, begins, middle_s):
            high_s = middle_s
        else:
            low_s = middle_s
    return low_s, high_s


def _fits(rows: Sequence[_Row], begins: _Begins, most_s: float) -> bool:
    """Return whether parts and cuts of at most ``most_s`` have all positions.

    Of all beginnings that the parts before reach, the last leaves the shortest part.
    """
    at, latest = np.arange(len(rows[0].until_s)), begins.latest
    reached = at == 0
    for row in rows:
        begin = np.where(latest < 0, -1, np.maximum.accumulate(np.where(reached, at, -1))[latest])
        fits = (row.until_s[1:] - row.from_s[begin] <= most_s) & (row.cut_s[1:] <= most_s)
        fits &= row.room[1:] - row.room[begin] <= 1 + _CLOSE
        reached = np.concatenate([[False], fits & (begin >= begins.earliest)])
    return bool(reached[-1])


def _cheapest(
    rows: Sequence[_Row], passing_bytes: Sequence[int], begins: _Begins, most_s: float
) -> list[int]:
    """Return the cuts at which the least bytes pass, with parts and cuts of at most ``most_s``."""
    count, infinite = len(passing_bytes), float("inf")
    cost: list[float] = [0.0, *[infinite] * count]
    before: list[list[int]] = []
    first = {id(row): row.first_beginnings(most_s, begins.earliest) for row in rows}
    last = [-1, *begins.latest.tolist()]
    can_end = {id(row): (row.cut_s <= most_s).tolist() for row in rows}
    low = [count]  # the first end of each part from which the parts that follow can have the rest
    for row in reversed(rows[1:]):
        low.append(first[id(row)][low[-1]])
    high = 0  # the last beginning of a part that the parts before it reach
    for part, row in enumerate(rows):
        ends, earliest = can_end[id(row)], first[id(row)]
        found, came = [infinite] * (count + 1), [0] * (count + 1)
        window, begun, reached = deque[int](), part and low[-part], 0
        for end in range(max(part + 1, low[-part - 1]), count + 1):
            if (begin := earliest[end]) > high:
                break
            for new in range(begun, last[end] + 1):
                while window and cost[window[-1]] >= cost[new]:
                    window.pop()
                window.append(new)
            begun = max(begun, last[end] + 1)
            while window and window[0] < begin:
                window.popleft()
            if ends[end] and window and cost[window[0]] < infinite:
                found[end] = cost[window[0]] + (passing_bytes[end] if end < count else 0)
                came[end], reached = window[0], end
        cost, high = found, reached
        before.append(came)
    cuts, end = [], count
    for came in reversed(before[1:]):
        end = came[end]
        cuts.append(end)
    return cuts[::-1]
