"""Keys of caches that stand for objects themselves, not for their contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Known", "Same"]

_T = TypeVar("_T")


class Same:
    """A key that equals other keys of the same object only, and keeps the object alive.

    For objects without a hash, and for large ones: comparing contents would take longer than all
    that a cache saves.
    """

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


_PLAIN = frozenset({int, bool, str})


class Known:
    """Objects that are made once per key."""

    def __init__(self) -> None:
        self._made: dict[object, tuple[tuple[object, ...], Any]] = {}

    def get(self, held: tuple[object, ...], make: Callable[[], _T]) -> _T:
        """Return the object of these numbers, words and objects; ``make`` it the first time."""
        # Tuples of one number differ from numbers. The objects stay alive, so numbers stay theirs.
        key = tuple([one if one.__class__ in _PLAIN else (id(one),) for one in held])
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = held, make()
        made: _T = found[1]
        return made

    def forget(self) -> None:
        """Drop all objects."""
        self._made.clear()
