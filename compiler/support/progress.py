"""Progress reporting."""

from __future__ import annotations

import sys
import time

from tensoropt.runtime.support.status_line import clear_line, show_line

__all__ = ["Progress"]

_TERMINAL_S, _LINES_S = 0.1, 1.0  # least time between two texts on the same subject


class Progress:
    """Text on stderr that changes in place, if stderr is a terminal.

    Otherwise nothing is printed, unless progress was ``asked`` for: then first lines at intervals.
    """

    def __init__(self, *, asked: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self._asked = asked
        self._next = 0.0
        self._subject = ""

    def __call__(self, text: str) -> None:
        """Show ``text`` instead of the text before, or its first line as the next line.

        The subject is the text up to a colon; texts on the same subject are shown at intervals.
        """
        subject, now = text.partition(":")[0], time.monotonic()
        soon = subject == self._subject and now < self._next
        if not soon:
            interval_s = _TERMINAL_S if self._terminal else _LINES_S
            self._subject, self._next = subject, now + interval_s
        if self._terminal:
            show_line(text, quietly=soon)
        elif self._asked and not soon:
            print(text.partition("\n")[0], file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the status line."""
        clear_line()
