"""The queue of requests for the next runs, in order of arrival."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Pending"]

T = TypeVar("T")


@dataclass(frozen=True)
class _Entry(Generic[T]):
    item: T
    key: Hashable
    samples: int
    since: float


class Pending(Generic[T]):
    """A queue of items with a number of samples each; items of the same key may share a run.

    A run contains the oldest item and the next items of its key, up to ``size`` samples in total.
    It is due when the next such item does not fit, or when the oldest is ``delay`` seconds old.
    """

    def __init__(self, size: int, delay: float) -> None:
        self._size, self._delay = size, delay
        self._entries: deque[_Entry[T]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, item: T, key: Hashable, samples: int, now: float) -> None:
        """Append ``item``; raises `ValueError` if it has more samples than a run."""
        if not 1 <= samples <= self._size:
            raise ValueError(f"samples: expected 1 to {self._size}, got: {samples}")
        self._entries.append(_Entry(item, key, samples, now))

    def remove(self, item: T) -> None:
        """Remove ``item``, if it is still queued."""
        self._entries = deque(entry for entry in self._entries if entry.item is not item)

    def due_in(self, now: float) -> float:
        """Return the seconds until a run is due: 0 if it is due, infinite for an empty queue."""
        if not self._entries:
            return math.inf
        _, is_full = self._next()
        return 0.0 if is_full else max(0.0, self._entries[0].since + self._delay - now)

    @property
    def is_full(self) -> bool:
        """True if no further item would fit into the next run."""
        return self._next()[1]

    def take(self) -> list[T]:
        """Remove and return the items of the next run, due or not; empty for an empty queue."""
        chosen, _ = self._next()
        taken = {id(entry) for entry in chosen}
        self._entries = deque(entry for entry in self._entries if id(entry) not in taken)
        return [entry.item for entry in chosen]

    def _next(self) -> tuple[list[_Entry[T]], bool]:
        """Return the items of the next run, and True if no further item fits."""
        chosen: list[_Entry[T]] = []
        left = self._size
        for entry in self._entries:
            if chosen and entry.key != chosen[0].key:
                continue
            if entry.samples > left:
                return chosen, True
            chosen.append(entry)
            left -= entry.samples
            if not left:
                return chosen, True
        return chosen, False
