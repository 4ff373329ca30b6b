"""A base class of context managers with a ``close`` method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn, Self

__all__ = ["Closing"]


class Closing(ABC):
    """A context manager that calls `close` on exit; a closed one cannot be entered."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; a second call does nothing."""

    def check_open(self) -> None:  # noqa: B027 - some have nothing to check
        """Raise `UserError` if it is closed."""

    def __enter__(self) -> Self:
        self.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} belongs to its process, expected a new one")
