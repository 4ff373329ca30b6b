"""Which elements a Slice takes along one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["taken", "written_ends"]

_TO_THE_END = (2**31 - 1, 2**63 - 1)


def taken(size: int, start: int, end: int, step: int) -> range:
    """Return the places of the elements, in order, as ONNX Runtime takes them.

    The largest integers stand for "to the end", which is the beginning where ``step`` is negative;
    a start in front of the first element is the first.
    """
    last = None if end in _TO_THE_END else end
    return range(size)[slice(max(start, -size), last, step)]


def written_ends(
    ends: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return ``ends`` with the least integer where the largest one stands for the beginning."""
    import numpy as np

    back = np.isin(ends, _TO_THE_END) & (steps < 0)
    return np.where(back, np.iinfo(ends.dtype).min, ends)
