"""Keys of caches that stand for objects themselves, not for their contents."""

from __future__ import annotations

__all__ = ["Same"]


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
