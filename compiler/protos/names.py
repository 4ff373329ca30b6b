"""Unique names that depend only on the order of requests."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Namer"]


class Namer:
    """Returns each name once: a second request for ``conv`` returns ``conv_1``."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """Return ``wanted`` or, if it is taken, ``wanted`` with the first free number."""
        name = wanted
        while name in self._taken:
            number = self._next.get(wanted, 0) + 1
            self._next[wanted] = number
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name
