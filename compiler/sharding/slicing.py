"""Which elements a Slice takes along one dimension."""

from __future__ import annotations

__all__ = ["taken"]

_TO_THE_END = (2**31 - 1, 2**63 - 1)


def taken(size: int, start: int, end: int, step: int) -> range:
    """Return the places of the elements, in order, as ONNX Runtime takes them.

    The largest integers stand for "to the end", which is the beginning where ``step`` is negative;
    a start in front of the first element is the first.
    """
    last = None if end in _TO_THE_END else end
    return range(size)[slice(max(start, -size), last, step)]
