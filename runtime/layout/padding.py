"""Equal parts of a dimension, and the limit of their padding."""

from __future__ import annotations

__all__ = ["can_pad", "part_of"]

_PADDING = 3
"""Padding is limited to 1/3 of the points of a dimension: a quarter of all parts together, so that
padded parts on n ranks are at least three quarters as efficient as n equal parts."""


def part_of(size: int, pieces: int) -> int:
    """Return the size of each of ``pieces`` equal parts; the last parts may be padded."""
    return -(-size // pieces)


def can_pad(size: int, pieces: int) -> bool:
    """Return whether splitting ``size`` into ``pieces`` stays within the limit of padding.

    The last parts may be all padding: 6 points make 4 parts of 2, and the last part is empty.
    """
    return part_of(size, pieces) * pieces - size <= size // _PADDING
