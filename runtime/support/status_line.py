"""The status on stderr: a line with the current activity and its elapsed time, and lines below it.

Nothing is written if stderr is not a terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time

__all__ = ["clear_line", "show_line"]

_WIDTH, _HEIGHT = 80, 24  # of a terminal that does not report its size
_LONG_S = 2.0  # an activity that takes longer is shown with its seconds
_TICK_S = 1.0


def show_line(text: str, *, quietly: bool = False) -> None:
    """Replace the status by ``text``, with the elapsed seconds of its first line if it stays long.

    With ``quietly`` it first appears together with the seconds: other texts will follow soon.
    """
    if sys.stderr.isatty():
        _LINE.show(text, quietly)


def clear_line() -> None:
    """Remove the line."""
    show_line("")


class _Line:
    """The state of the line; a thread updates the elapsed seconds while the line has text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text, self._since = "", 0.0
        self._drawn, self._ticks = "", False

    def show(self, text: str, quietly: bool) -> None:
        with self._lock:
            if text != self._text:
                self._text, self._since = text, time.monotonic()
            # Do not erase output of others.
            if not quietly and (text or self._drawn):
                self._draw(text)
            if text and not self._ticks:
                self._ticks = True
                threading.Thread(target=self._tick, name="status line", daemon=True).start()

    def _tick(self) -> None:
        """Draw the seconds of a long activity, until the line has no text."""
        while True:
            with self._lock:
                lasted_s = time.monotonic() - self._since
                if self._text and lasted_s >= _LONG_S:
                    first, *below = self._text.split("\n")
                    self._draw("\n".join((f"{first} ({lasted_s:.0f} s)", *below)))
                self._ticks = bool(self._text)  # under the lock: `show` starts the next thread
                if not self._ticks:
                    return
            time.sleep(_TICK_S)

    def _draw(self, text: str) -> None:
        _draw(text, erases_below="\n" in self._drawn)
        self._drawn = text


_LINE = _Line()


def _draw(text: str, *, erases_below: bool) -> None:
    """Draw lines from the cursor's line on, cut to the terminal, and move the cursor back."""
    try:
        descriptor = sys.stderr.fileno()
        size = os.get_terminal_size(descriptor)
    except (OSError, ValueError):  # the terminal is closed, or closing
        return
    width, height = size.columns or _WIDTH, size.lines or _HEIGHT
    lines = [line[: max(width - 1, 1)] for line in text.split("\n")[: max(height - 1, 1)]]
    back = f"\r\033[{len(lines) - 1}A" if len(lines) > 1 else ""
    shown = f"\r\033[{'J' if erases_below else 'K'}" + "\n".join(lines) + back
    # Bypass the buffer of stderr: a process forked during the write would inherit its lock.
    sys.stderr.flush()
    os.write(descriptor, shown.encode(errors="replace"))
