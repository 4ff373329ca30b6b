"""Ordered lines of jobs that are equal for a policy."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from cluster.jobs import State

__all__ = ["Line", "Lines"]

Line = list[tuple[tuple[float, float, int], State]]
"""Jobs with their keys, least first."""


class Lines:
    """All present jobs, running or not: one line per class, ordered by `State.key`.

    Adding and removing take O(log n) comparisons and a move of memory.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[int, ...], Line] = {}
        self.count = 0

    def add(self, state: State, line: tuple[int, ...]) -> None:
        """Add a job, with a unique key, to a line."""
        state.line = line
        insort(self._lines.setdefault(line, []), (state.key, state), key=_key)
        self.count += 1

    def remove(self, state: State) -> None:
        """Remove a job from its line."""
        line = self._lines[state.line]
        del line[bisect_left(line, state.key, key=_key)]
        self.count -= 1
        if not line:
            del self._lines[state.line]

    def items(self) -> Iterator[tuple[tuple[int, ...], Line]]:
        """Yield every non-empty line with its class."""
        yield from self._lines.items()


def _key(pair: tuple[tuple[float, float, int], State]) -> tuple[float, float, int]:
    return pair[0]
