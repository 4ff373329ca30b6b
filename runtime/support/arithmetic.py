"""The element by element arithmetic that a rank puts together: what of it runs as one pass."""

from __future__ import annotations

__all__ = ["ARITHMETIC", "CAST", "ONE_PASS"]

ONE_PASS = "tensoropt.Elementwise"
"""The operator that goes over arrays once for all the steps of a program."""

ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Sqrt")
"""The steps of its programs, by the numbers of runtime/ops/cpu/elementwise.hpp."""

CAST = "Cast"
"""What it does as it reads, or as it writes."""
