"""Names of the elementwise arithmetic that a rank fuses into one pass."""

from __future__ import annotations

__all__ = ["ARITHMETIC", "CAST", "ONE_PASS"]

ONE_PASS = "tensoropt.Elementwise"
"""The fused operator: one pass over its arrays for all steps of a program."""

ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Sqrt")
"""The steps of its programs, in the order of the codes in runtime/ops/cpu/elementwise.hpp."""

CAST = "Cast"
"""A conversion on load or on store."""
