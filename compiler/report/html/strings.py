"""Interned texts of a report, and rounded figures."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Strings", "rounded"]


class Strings:
    """Interned texts, numbered in the order of their first use; 0 is the empty text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        """Return the number of ``text``."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> Sequence[str]:
        """All texts, each at its number."""
        return list(self._numbers)


def rounded(figure: float) -> float:
    """Return a figure rounded to seven significant digits, which shortens the page."""
    return float(f"{figure:.7g}")
