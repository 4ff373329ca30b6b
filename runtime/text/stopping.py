"""Ends of texts: stop texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopTexts", "partial_stop"]


class StopTexts:
    """Passes a text up to the first stop of ``texts``; withholds the possible beginning of a stop.

    >>> until = StopTexts(["END"])
    >>> until.add("one E"), until.add("asy EN"), until.add("D two"), until.found
    ('one ', 'Easy ', '', True)
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text for text in texts if text]
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """Return the further text that certainly comes before any stop."""
        self._held += text
        places = [at for stop in self._texts if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            through, self._held = self._held[: min(places)], ""
            return through
        return self._pass(len(self._held) - partial_stop(self._held, self._texts))

    def is_before(self, text: str) -> bool:
        """Return True if a stop ends the further ``text``, without adding it."""
        return any(stop in self._held + text for stop in self._texts)

    def rest(self) -> str:
        """Return the withheld text, at the end of the stream."""
        return self._pass(len(self._held))

    def _pass(self, count: int) -> str:
        through, self._held = self._held[:count], self._held[count:]
        return through


def partial_stop(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest suffix of a text that may begin one of ``stops``."""
    longest = max(map(len, stops), default=1) - 1
    sizes = range(min(longest, len(text)), 0, -1)
    ends = (n for n in sizes if any(stop.startswith(text[-n:]) for stop in stops))
    return next(ends, 0)
