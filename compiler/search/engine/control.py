"""Progress of a search, and its early end: by the clock or by Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Literal

from tensoropt.compiler.support.errors import UserError

__all__ = ["Control", "OutOfTimeError", "Status", "alarm"]

_OURS = f"{__name__.partition('.')[0]}."

PHASES = ("fastest and leanest", "supported points", "points between", "gaps")


class OutOfTimeError(UserError):
    """The time was over before a result was found."""


@dataclass(frozen=True)
class Status:
    """State of a search: its phase, the bound proved so far, and the number of searched gaps.

    ``part`` numbers the parts of a divided problem (``3 of 16``).
    """

    phase: int
    epsilon: float
    done: int = 0
    gaps: int = 0
    stopping: bool = False
    part: str = ""

    def __str__(self) -> str:
        words = [f"part {self.part}"] if self.part else []
        words.append(PHASES[self.phase])
        if self.gaps:
            words[-1] += f" ({self.done} of {self.gaps} searched)"
        if math.isfinite(self.epsilon):
            words.append(f"within {self.epsilon:.2%} so far")
        return ", ".join([*words, *(["stopping"] if self.stopping else [])])


@dataclass(frozen=True)
class Control:
    """The callback of a search, and the limits other than its time limit.

    Past ``last_limit_s`` (``None`` for no such limit) even the search for the fastest and the
    leanest point ends, with :class:`OutOfTimeError`. Ctrl-C raises KeyboardInterrupt. With
    ``on_interrupt`` "return" the first Ctrl-C ends the search like a time limit, with ``grace_s``
    for these two points; only a second Ctrl-C raises. ``watch`` is called now and then, and ends
    the search by raising.
    """

    last_limit_s: float | None = None
    on_interrupt: Literal["raise", "return"] = "raise"
    grace_s: float = math.inf
    watch: Callable[[Status], None] | None = None

    def advance(self, past_s: float) -> Control:
        """Return the control after ``past_s`` seconds: the last limit is that much shorter.

        Raises :class:`OutOfTimeError` if the last limit is over.
        """
        if self.last_limit_s is None:
            return self
        if past_s >= self.last_limit_s:
            raise OutOfTimeError("search: time was over before this part")
        return replace(self, last_limit_s=self.last_limit_s - past_s)


@contextmanager
def alarm(end: float | None) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` in the block once ``time.monotonic()`` is past ``end``.

    Only the main thread can be interrupted, and only if the timer is free; otherwise the block
    runs to its end. The exception is raised only in code of this package. In a destructor or
    another callback it would be lost, or end something else.
    """
    main = threading.current_thread() is threading.main_thread()
    if end is None or not main or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    if time.monotonic() >= end:
        raise OutOfTimeError("time is over")

    def ring(number: int, frame: FrameType | None) -> None:
        name = "" if frame is None else str(frame.f_globals.get("__name__"))
        # Not in this module: an exception in the cleanup below would leave the timer on.
        if name.startswith(_OURS) and name != __name__:
            raise OutOfTimeError("time is over")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        # The timer repeats until it rings in code of this package.
        signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 1e-6), 0.02)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
