"""How much of ONNX Runtime's arena tensors touch that come and go (decision 46)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Life", "touched_bytes"]

_ROUNDED = 256
"""Bytes; sizes of blocks are multiples of it."""

_DEAD = 128 << 20
"""Bytes; a free block that is so much larger than what is asked for is cut."""

_LEAST = 64 << 20
"""Bytes of the first block at least (runtime/device/host_memory.py)."""


@dataclass(frozen=True)
class Life:
    """A tensor that is there from one moment to another, both included."""

    first: int
    last: int
    size_bytes: int


def touched_bytes(lives: Sequence[Life]) -> int:
    """Return how many bytes of an arena are ever written, if tensors live so.

    The arena takes the smallest free block that is large enough and cuts it where twice as large;
    its first block has room for the most that lives at a time, twice, another is added where
    nothing fits. Linear in the lives, times the free blocks.
    """
    arena = _Arena(max(2 * _most_bytes(lives), _LEAST))
    born, dying = _by(lives, "first"), _by(lives, "last")
    for moment in sorted({*born, *dying}):
        for number in born.get(moment, ()):
            arena.take(number, lives[number].size_bytes)
        for number in dying.get(moment, ()):
            arena.give_back(number)
    return arena.touched_bytes()


def _by(lives: Iterable[Life], name: str) -> Mapping[int, Sequence[int]]:
    """Return the numbers of the lives by their ``first`` or ``last`` moment."""
    found: dict[int, list[int]] = {}
    for number, life in enumerate(lives):
        if life.size_bytes:
            found.setdefault(getattr(life, name), []).append(number)
    return found


def _most_bytes(lives: Sequence[Life]) -> int:
    changes = [(life.first, 0, life.size_bytes) for life in lives]
    changes += [(life.last, 1, -life.size_bytes) for life in lives]
    now = most = 0
    for *_, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


class _Arena:
    """Blocks at addresses; ``free`` ones by size, then address."""

    def __init__(self, size: int) -> None:
        self._end = size
        self._free = [(size, 0)]
        self._taken: dict[int, tuple[int, int]] = {}
        self._written: list[tuple[int, int]] = []

    def take(self, number: int, size: int) -> None:
        rounded = -(-size // _ROUNDED) * _ROUNDED
        place = bisect_left(self._free, (rounded, 0))
        if place == len(self._free):
            insort(self._free, (max(rounded, self._end), self._end + 1))  # next to no other
            self._end += max(rounded, self._end) + 1
            place = bisect_left(self._free, (rounded, 0))
        found, start = self._free.pop(place)
        if found >= 2 * rounded or found - rounded >= _DEAD:
            insort(self._free, (found - rounded, start + rounded))
            found = rounded
        self._taken[number] = found, start
        self._written.append((start, start + size))

    def give_back(self, number: int) -> None:
        """Free a block, which becomes one with those beside it."""
        size, start = self._taken.pop(number)
        for other in [one for one in self._free if _touches(one, size, start)]:
            self._free.remove(other)
            size, start = size + other[0], min(start, other[1])
        insort(self._free, (size, start))

    def touched_bytes(self) -> int:
        touched = end = 0
        for first, last in sorted(self._written):
            touched += max(last - max(first, end), 0)
            end = max(end, last)
        return touched


def _touches(other: tuple[int, int], size: int, start: int) -> bool:
    return other[1] + other[0] == start or start + size == other[1]
