"""Waiting lines: jobs that are alike, in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from cluster.jobs import State

__all__ = ["Line", "Lines"]

Line = list[tuple[tuple[float, float, int], State]]
"""Jobs with their keys, least first."""


class Lines:
    """All jobs that are there, running or not: one line per class, in it by `State.key`.

    Adding and removing take O(log n) comparisons and a move of memory.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[int, ...], Line] = {}
        self.count = 0

    def add(self, state: State, line: tuple[int, ...]) -> None:
        """Put a job, whose key is unlike any other's, into a line."""
        state.line = line
        insort(self._lines.setdefault(line, []), (state.key, state), key=_key)
        self.count += 1

    def remove(self, state: State) -> None:
        """Take a job out of its line."""
        line = self._lines[state.line]
        del line[bisect_left(line, state.key, key=_key)]
        self.count -= 1
        if not line:
            del self._lines[state.line]

    def items(self) -> Iterator[tuple[tuple[int, ...], Line]]:
        """Yield every line that has jobs, with its class."""
        yield from self._lines.items()


def _key(pair: tuple[tuple[float, float, int], State]) -> tuple[float, float, int]:
    return pair[0]
