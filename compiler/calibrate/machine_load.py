"""Load of the machine by other work, which makes every measurement too long."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["busy_fraction"]

_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)  # idle, and waiting for disks
_ALL = slice(0, 8)  # without guests, which the others contain


def busy_fraction(seconds: float) -> float | None:
    """Return the fraction of all cores that is busy during the next ``seconds``; None if unknown.

    Reads Linux's counters in ``/proc/stat``.
    """
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return 1.0 - (after[0] - before[0]) / (after[1] - before[1])


def _ticks() -> tuple[int, int] | None:
    """Return the idle ticks of the cores, and all ticks, since the machine started."""
    try:
        first = _STAT.read_text(encoding="utf-8").splitlines()[0]
    except OSError:
        return None
    counts = [int(field) for field in first.split()[1:]]
    return sum(counts[_IDLE]), sum(counts[_ALL])
