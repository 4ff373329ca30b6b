"""Names of the elementwise arithmetic that a rank fuses into one pass."""

from __future__ import annotations

__all__ = ["ARITHMETIC", "CAST", "GATE", "ONE_PASS"]

ONE_PASS = "tensoropt.Elementwise"
"""The fused operator: one pass over its arrays for all steps of a program."""

ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Sqrt")
"""The steps of its programs, in the order of the codes in runtime/ops/cpu/elementwise.hpp."""

GATE = "Gate"
"""The step after these: its first operand where the second is positive, and 0 elsewhere. Graphs
have it as a comparison and a selection."""

CAST = "Cast"
"""A conversion on load or on store."""
