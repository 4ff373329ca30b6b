"""Standard operators that draw random numbers; the attribute `seed` selects the sequence."""

from __future__ import annotations

__all__ = ["DROPOUT", "RANDOM"]

RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)
"""Operators that always draw."""

DROPOUT = "Dropout"
"""The operator that draws only in training."""
