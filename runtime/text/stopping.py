"""Ends of texts: stop texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopTexts"]


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
        return self._pass(len(self._held) - self._partial_stop())

    def rest(self) -> str:
        """Return the withheld text, at the end of the stream."""
        return self._pass(len(self._held))

    def _pass(self, count: int) -> str:
        through, self._held = self._held[:count], self._held[count:]
        return through

    def _partial_stop(self) -> int:
        """Return the length of the longest suffix that may begin a stop."""
        longest = max((len(text) for text in self._texts), default=1) - 1
        sizes = range(min(longest, len(self._held)), 0, -1)
        ends = (n for n in sizes if any(t.startswith(self._held[-n:]) for t in self._texts))
        return next(ends, 0)
