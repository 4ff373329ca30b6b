"""The operators that random graphs are made of, a family per module."""

from __future__ import annotations

from fuzz.operators import (
    control,
    elementwise,
    indexing,
    movement,
    normalizing,
    products,
    quantized,
    recurrent,
    reducing,
    runtime,
    shapes,
    windows,
)
from fuzz.operators.registry import MAKERS, Maker

__all__ = [
    "MAKERS",
    "Maker",
    "control",
    "elementwise",
    "indexing",
    "movement",
    "normalizing",
    "products",
    "quantized",
    "recurrent",
    "reducing",
    "runtime",
    "shapes",
    "windows",
]
