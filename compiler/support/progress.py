"""What is being done, for whom waits for it."""

from __future__ import annotations

import sys
import time

from tensoropt.runtime.support.status_line import clear_line, show_line

__all__ = ["Progress"]

_TERMINAL_S, _LINES_S = 0.1, 1.0  # between two texts about the same


class Progress:
    """What is being done: one line of stderr that changes, if that is a terminal.

    Elsewhere nothing, unless ``asked`` for: then a line now and then.
    """

    def __init__(self, *, asked: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self._asked = asked
        self._next = 0.0
        self._what = ""

    def __call__(self, text: str) -> None:
        """Show ``text``: in place of what was shown before, or as the next line.

        Up to a colon it says what is worked on, which is not shown twice in quick succession.
        """
        what, now = text.partition(":")[0], time.monotonic()
        soon = what == self._what and now < self._next
        if not soon:
            self._what, self._next = what, now + (_TERMINAL_S if self._terminal else _LINES_S)
        if self._terminal:
            show_line(text, quietly=soon)
        elif self._asked and not soon:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        clear_line()
