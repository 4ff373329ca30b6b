"""Bytes of the edges of a split image, and their lower bound."""

from __future__ import annotations

import numpy as np
import pytest
from search.convolution_volume import Convolution, bound_bytes, sent_bytes


def _read_outside(one: Convolution, grid: tuple[int, int]) -> int:
    """Return the most elements that any rank's windows read outside its part, window by window."""
    found = []
    for row, column in np.ndindex(*grid):
        reads = np.zeros([one.size] * 2, bool)
        sides = [_reads(one, *at) for at in ((row, grid[0]), (column, grid[1]))]
        reads[np.ix_(*sides)] = True
        height, width = (one.size // extent for extent in grid)
        reads[row * height : (row + 1) * height, column * width : (column + 1) * width] = False
        found.append(int(reads.sum()))
    return max(found) * one.channels * 4


def _reads(one: Convolution, place: int, parts: int) -> list[int]:
    count = one.size // one.stride // parts
    windows = range(place * count, (place + 1) * count)
    starts = [window * one.stride - (one.taps - 1) // 2 for window in windows]
    held = {start + tap for start in starts for tap in range(one.taps)}
    return sorted(place for place in held if 0 <= place < one.size)


@pytest.mark.parametrize(
    ("one", "grid", "ratio"),
    [
        (Convolution(2, 32, 3, 1), (4, 1), 1.0),
        (Convolution(2, 32, 3, 1), (4, 4), 1.0),
        (Convolution(2, 32, 3, 2), (2, 2), 1.0),
        (Convolution(1, 64, 7, 2), (4, 1), 1.2),  # 3 above and 2 below
    ],
)
def test_least_is_sent(one: Convolution, grid: tuple[int, int], ratio: float) -> None:
    assert bound_bytes(one, grid) == _read_outside(one, grid)
    assert sent_bytes(one, grid) == pytest.approx(ratio * bound_bytes(one, grid))
