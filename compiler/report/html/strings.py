"""Texts that a report repeats, each once, and figures with as many digits as are read."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Strings", "rounded"]


class Strings:
    """Texts by number, in the order in which they were first asked for; 0 is the empty one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        """Return the number of ``text``."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> Sequence[str]:
        """All of them, each at its number."""
        return list(self._numbers)


def rounded(figure: float) -> float:
    """Return a figure to seven significant digits, which is shorter to write."""
    return float(f"{figure:.7g}")
