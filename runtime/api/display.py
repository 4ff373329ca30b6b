"""Reports on a plan: text for people, and data."""

from __future__ import annotations

from html import escape
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Shown"]


class _Data(Protocol):
    def to_json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=_Data)


class Shown(Generic[T]):
    """``data`` with a text form, which is its representation in consoles and notebooks."""

    def __init__(self, data: T, text: str) -> None:
        self.data, self._text = data, text

    def __repr__(self) -> str:
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"

    def text(self) -> str:
        """Return the text that the commands print."""
        return self._text

    def to_json(self) -> dict[str, Any]:
        """Return the data for a JSON encoder."""
        return self.data.to_json()
