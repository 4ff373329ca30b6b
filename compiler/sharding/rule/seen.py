"""Keys that rows of a causal attention see."""

from __future__ import annotations

__all__ = ["mean_seen"]


def mean_seen(first: int, last: int, window: int = 0) -> float:
    """Return the mean number of keys that the rows from ``first`` up to ``last`` see.

    A row sees the keys up to its own place, at most ``window`` if that is not 0. Half of its own
    key counts, so that all rows of a square attention see half of the keys.
    """

    def pairs(rows: int) -> float:
        growing = min(rows, window) if window else rows
        return growing * growing / 2 + (rows - growing) * window

    return (pairs(last) - pairs(first)) / (last - first)
