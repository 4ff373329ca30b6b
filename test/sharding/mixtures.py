"""Mixtures of experts for the truth test, and the experts that their tokens select."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sharding.harness import Case, normal

__all__ = ["HIDDEN", "LOADS", "RUNTIME", "WIDE", "mixture", "mixtures", "routed"]

RUNTIME = "com.microsoft"
HIDDEN, WIDE = 16, 32
_ACTIVATIONS = ["relu", "gelu", "silu", "identity"]


def mixture(
    experts: int = 4, *, tokens: tuple[int, ...] = (6,), biases: bool = True, fused: int = 0,
    **attributes: Any,
) -> Case:  # fmt: skip
    """Return a mixture of experts that widen 16 elements to 32."""
    rows, double = int(np.prod(tokens)), 2 if fused else 1
    operands = [
        normal(*tokens, HIDDEN),
        normal(rows, experts),
        normal(experts, double * WIDE, HIDDEN, seed=1),
        normal(experts, double * WIDE, seed=2) if biases else None,
        normal(experts, HIDDEN, WIDE, seed=3),
        normal(experts, HIDDEN, seed=4) if biases else None,
    ]
    attributes |= {"swiglu_fusion": fused, "activation_type": "swiglu"} if fused else {}
    return Case("MoE", operands, attributes, 1, RUNTIME)


@st.composite
def mixtures(draw: st.DrawFn) -> Case:
    """Draw a mixture of few experts."""
    fused = draw(st.sampled_from([0, 1]))
    attributes: dict[str, Any] = {
        "k": draw(st.sampled_from([1, 2])),
        "normalize_routing_weights": int(draw(st.booleans())),
    }
    if not fused:
        attributes["activation_type"] = draw(st.sampled_from(_ACTIVATIONS))
    return mixture(
        draw(st.sampled_from([2, 4, 8])),
        tokens=draw(st.sampled_from([(8,), (4,), (4, 2), (1, 3)])),
        biases=draw(st.booleans()),
        fused=fused,
        **attributes,
    )


def routed(case: Case, *choices: tuple[int, ...]) -> Case:
    """Return ``case``, with the experts that each token selects, the first with more weight."""
    logits = np.full(case.operands[1].shape, -9.0, np.float32)
    for token, own in enumerate(choices):
        for rank, expert in enumerate(own):
            logits[token, expert] = len(own) - rank
    return replace(case, operands=[case.operands[0], logits, *case.operands[2:]])


LOADS = {
    "all tokens select the experts of one rank": [(0, 1)] * 8,
    "all tokens select one expert": [(3, 0)] * 8,
    "an expert without tokens": [(0, 3), (3, 1), (0, 1), (1, 0)] * 2,
    "ranks without tokens": [(0, 1)] * 4 + [(1, 0)] * 4,
    "all tokens leave their rank": [(2, 3)] * 4 + [(0, 1)] * 4,
    "no token leaves its rank": [(0, 1)] * 4 + [(3, 2)] * 4,
}
