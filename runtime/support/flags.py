"""Numbers on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["integer", "number"]


def number(low: float) -> Callable[[str], float]:
    """Return what reads a finite number that is at least ``low``."""

    def number(text: str) -> float:
        value = float(text)
        if not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"expected at least {low:g}, got: {text}")
        return value

    return number


def integer(low: int) -> Callable[[str], int]:
    """Return what reads an integer that is at least ``low``."""

    def integer(text: str) -> int:
        value = int(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"expected at least {low}, got: {value}")
        return value

    return integer
