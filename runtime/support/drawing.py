"""Operators of the standard that draw random numbers; their attribute `seed` says which."""

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
"""Those that always draw."""

DROPOUT = "Dropout"
"""The one that draws in training alone."""
