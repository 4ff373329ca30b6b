"""Bounds of a Slice along one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["normalize_ends", "slice_indices"]

_TO_THE_END = (2**31 - 1, 2**63 - 1)


def slice_indices(size: int, start: int, end: int, step: int) -> range:
    """Return the indices of the sliced elements, in order, as ONNX Runtime computes them.

    The largest int32 and int64 mean "to the end", which is the beginning if ``step`` is negative. A
    start before the first element is clamped to it.
    """
    last = None if end in _TO_THE_END else end
    return range(size)[slice(max(start, -size), last, step)]


def normalize_ends(
    ends: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return ``ends`` with the least integer wherever the largest one stands for the beginning."""
    import numpy as np

    back = np.isin(ends, _TO_THE_END) & (steps < 0)
    return np.where(back, np.iinfo(ends.dtype).min, ends)
