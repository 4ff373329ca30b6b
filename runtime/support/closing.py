"""Contexts that end what they hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """A context that closes itself at its end."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; again is no error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
