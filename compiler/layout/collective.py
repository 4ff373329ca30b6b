"""The collectives that move a tensor from one layout to another."""

from __future__ import annotations

from typing import Literal

__all__ = ["AMPLE", "HOLDING", "OVERLAPS", "Collective"]

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"
]

OVERLAPS = ("auto", "off")
"""Whether collectives may run beside operators: where that gains, or never."""

AMPLE = "ample"
"""They may where that gains, though the program then takes more memory: what some points have."""

HOLDING: frozenset[str] = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""Those that read what they are given until they end, when they run beside operators; the other
works in its result."""
