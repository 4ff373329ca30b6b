"""Waiting for a condition in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["wait_until"]


def wait_until(
    condition: Callable[[], object], limit_s: float = 60.0, what: str = "no condition"
) -> None:
    """Wait until ``condition`` is true; fails after ``limit_s`` with ``what``."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what} in {limit_s:g} s"
        time.sleep(0.02)
