"""Restrictions of the tokens of a text, other than grammars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["AtLeast"]


class AtLeast:
    """Forbids the tokens of ``end`` until a text has ``count`` new tokens."""

    def __init__(self, count: int, end: Sequence[int]) -> None:
        self._left, self._end = count, np.array(end, np.intp)

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        """Return True for each of ``size`` tokens that may follow."""
        found = np.ones(size, np.bool_)
        if self._left > 0:
            found[self._end[self._end < size]] = False
        return found

    def take(self, token: int) -> None:
        """Count a chosen token."""
        self._left -= 1
