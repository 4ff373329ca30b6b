"""Ways that take turns and do next to nothing, importable by their processes."""

from __future__ import annotations

import time

from turns import Gate, Place

__all__ = ["fail", "sleep"]


def sleep(place: Place, gate: Gate, seconds: float) -> tuple[int, int]:
    """Sleep in each step; return the rank and the number of steps."""
    steps = 0
    while gate():
        time.sleep(seconds)
        steps += 1
    return place.rank, steps


def fail(place: Place, gate: Gate) -> None:
    """Fail in the first step."""
    gate()
    raise ValueError("of this way")
