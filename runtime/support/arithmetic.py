"""Names of the elementwise arithmetic that a rank fuses into one pass."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ARITHMETIC",
    "CAST",
    "GATE",
    "ONE_PASS",
    "ON_CPU",
    "ON_GPU",
    "POWER",
    "STEPS",
    "SUM",
    "Fusion",
]

ONE_PASS = "tensoropt.Elementwise"
"""The fused operator: one pass over its arrays for all steps of a program."""

ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Sqrt")
"""The steps of its programs, in the order of the codes in runtime/ops/cpu/elementwise.hpp."""

GATE = "Gate"
"""The step after these: its first operand where the second is positive, and 0 elsewhere. Graphs
have it as a comparison and a selection."""

CAST = "Cast"
"""A conversion on load or on store."""

SUM, POWER = "Sum", "Pow"
"""Several additions, and a product with itself if the exponent is 2: no other power is fused."""

STEPS = (*ARITHMETIC, GATE, "Neg", "Reciprocal", "Exp", "Sigmoid", "Tanh", "Erf")
"""All steps, in the order of their codes."""


@dataclass(frozen=True)
class Fusion:
    """The nodes that the kernel of a provider fuses.

    ``operators`` are steps, or made of steps. A chain has at least ``least`` nodes, unless it has a
    gate. If ``narrow`` is set, arithmetic on float16 and bfloat16 is fused too: it is in float32,
    and only the arrays that are written are rounded. If ``broadcasts`` is set, arrays may be
    smaller than the results.
    """

    operators: frozenset[str]
    least: int
    narrow: bool
    broadcasts: bool


ON_CPU = Fusion(frozenset((*ARITHMETIC, GATE)), least=3, narrow=False, broadcasts=False)
"""With two nodes, a node of ours takes as long as a pass; functions are faster in ONNX Runtime."""

ON_GPU = Fusion(frozenset((*STEPS, SUM, POWER)), least=2, narrow=True, broadcasts=True)
"""Each node takes the time of its memory traffic."""
