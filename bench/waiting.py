"""Waiting for a condition, in benchmarks and tests."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["wait_until"]

_LOOK_S = 0.02


def wait_until(
    condition: Callable[[], object], limit_s: float = 120.0, what: str = "no condition"
) -> None:
    """Wait until ``condition`` is true. Raises TimeoutError after ``limit_s``, with ``what``."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} in {limit_s:g} s")
        time.sleep(_LOOK_S)
