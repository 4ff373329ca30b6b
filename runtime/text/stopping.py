"""When a text is at its end."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MAX_TOKENS", "StopTexts"]

MAX_TOKENS = 128
"""How many more there are at most, where nobody says."""


class StopTexts:
    """Lets a text through up to the first of some ``texts``, which it holds back until it is sure.

    >>> until = StopTexts(["END"])
    >>> until.add("one E"), until.add("asy EN"), until.add("D two"), until.found
    ('one ', 'Easy ', '', True)
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text for text in texts if text]
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """Return what more of the text is known to come before any stop."""
        self._held += text
        places = [at for stop in self._texts if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            through, self._held = self._held[: min(places)], ""
            return through
        return self._let(len(self._held) - self._begun())

    def rest(self) -> str:
        """Return what was held back, as no more will come."""
        return self._let(len(self._held))

    def _let(self, count: int) -> str:
        through, self._held = self._held[:count], self._held[count:]
        return through

    def _begun(self) -> int:
        """Return how much of the end may be the beginning of a stop."""
        longest = max((len(text) for text in self._texts), default=1) - 1
        sizes = range(min(longest, len(self._held)), 0, -1)
        ends = (n for n in sizes if any(t.startswith(self._held[-n:]) for t in self._texts))
        return next(ends, 0)
