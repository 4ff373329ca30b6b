"""The one line of a terminal's stderr that changes: what is being done, and how long it has taken.

Nothing is written where stderr is no terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time

__all__ = ["clear_line", "show_line"]

_WIDTH = 80  # of a terminal that does not say
_LONG_S = 2.0  # what takes longer is shown with its seconds
_TICK_S = 1.0


def show_line(text: str, *, quietly: bool = False) -> None:
    """Show ``text`` in place of what was shown before, with its seconds if it stays for long.

    ``quietly`` has it shown with the seconds at the earliest: others will follow soon.
    """
    if sys.stderr.isatty():
        _LINE.show(text, quietly)


def clear_line() -> None:
    """Take the line away."""
    show_line("")


class _Line:
    """What is shown; a thread of its own says how long, while there is something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text, self._since = "", 0.0
        self._is_drawn = self._ticks = False

    def show(self, text: str, quietly: bool) -> None:
        with self._lock:
            if text != self._text:
                self._text, self._since = text, time.monotonic()
            # What others have written is not to be wiped away.
            if not quietly and (text or self._is_drawn):
                self._draw(text)
            if text and not self._ticks:
                self._ticks = True
                threading.Thread(target=self._tick, name="status line", daemon=True).start()

    def _tick(self) -> None:
        while self._tell():
            time.sleep(_TICK_S)

    def _tell(self) -> bool:
        """Show the seconds of what takes long; says whether there is still something to show."""
        with self._lock:
            lasted_s = time.monotonic() - self._since
            if self._text and lasted_s >= _LONG_S:
                self._draw(f"{self._text} ({lasted_s:.0f} s)")
            self._ticks = bool(self._text)
            return self._ticks

    def _draw(self, text: str) -> None:
        _draw(text)
        self._is_drawn = bool(text)


_LINE = _Line()


def _draw(text: str) -> None:
    try:
        descriptor = sys.stderr.fileno()
        width = os.get_terminal_size(descriptor).columns or _WIDTH
    except (OSError, ValueError):  # the terminal has gone, or is being closed
        return
    shown = f"\r\033[K{text[: max(width - 1, 1)]}"
    # Past the buffer of stderr, whose lock a process that is forked meanwhile would inherit.
    sys.stderr.flush()
    os.write(descriptor, shown.encode(errors="replace"))
