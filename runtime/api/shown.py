"""What is said of a plan: text for people, and data."""

from __future__ import annotations

from html import escape
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Shown"]


class _Data(Protocol):
    def to_json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=_Data)


class Shown(Generic[T]):
    """``data``, and the text of it, which is printed where this is shown."""

    def __init__(self, data: T, text: str) -> None:
        self.data, self._text = data, text

    def __repr__(self) -> str:
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"

    def text(self) -> str:
        """Return it as the commands print it."""
        return self._text

    def to_json(self) -> dict[str, Any]:
        """Return the data for a JSON encoder."""
        return self.data.to_json()
