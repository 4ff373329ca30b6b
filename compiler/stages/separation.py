"""Places that separate parallel operations, and an order of operations with more of these."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["branch_by_branch", "longest_branch", "separates"]

_Ints = npt.NDArray[np.int64]

_PARTS = [1 / 2 - 3 / 8 / 2**n for n in range(5)]
"""Parts of all operations that a long branch can have: from an eighth to nearly a half."""


def separates(
    made: _Ints, read: _Ints, times_s: npt.NDArray[np.float64], least_s: float
) -> npt.NDArray[np.bool_]:
    """Return for each place whether operations from there on read nothing from those before.

    That is, nothing that was made in ``least_s`` before it is read in ``least_s`` from there on.
    Values go from the places ``made`` to ``read``. ``O(n log n)`` in the values.
    """
    until_s, count = np.concatenate([[0.0], np.cumsum(times_s)]), len(times_s)
    first = np.searchsorted(until_s, until_s[:-1] - least_s, "right") - 1
    end = np.searchsorted(until_s, until_s[:-1] + least_s, "left")
    # A value forbids the places between with its maker after `first` and its reader before `end`.
    low = np.maximum(made + 1, np.searchsorted(end, read, "right"))
    high = np.minimum(read, np.searchsorted(first, made, "right") - 1)
    spans = [own[low <= high] for own in (low, high + 1)]
    begun, ended = (np.bincount(own, minlength=count + 1) for own in spans)
    found: npt.NDArray[np.bool_] = np.cumsum(begun - ended)[:count] == 0
    found &= (first >= 0) & (end <= count)
    return found


def branch_by_branch(sources: Sequence[Collection[int]]) -> list[int]:
    """Return the places in an order in which each operation follows the last one that it can.

    Of the operations that can run, the next one is the first of those that the last one enabled.
    ``sources`` has the places that each operation reads from. Linear in these.
    """
    readers: list[list[int]] = [[] for _ in sources]
    for place, own in enumerate(sources):
        for source in own:
            readers[source].append(place)
    missing = [len(own) for own in sources]
    ready = [place for place in reversed(range(len(sources))) if not missing[place]]
    found: list[int] = []
    while ready:
        place = ready.pop()
        found.append(place)
        for reader in reversed(readers[place]):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return found


def longest_branch(sources: Sequence[Collection[int]], order: Sequence[int]) -> float:
    """Return the part of all operations by which some place of an order separates them.

    It is 0 if no place separates an eighth. ``sources`` has the places that each operation reads
    from. ``O(n log n)`` in these.
    """
    at = {place: number for number, place in enumerate(order)}
    pairs = [(at[source], at[place]) for place, own in enumerate(sources) for source in own]
    made, read = np.array(pairs, np.int64).reshape(-1, 2).T
    times = np.ones(len(order))
    parts = (part for part in _PARTS if separates(made, read, times, part * len(order)).any())
    return max(parts, default=0.0)
