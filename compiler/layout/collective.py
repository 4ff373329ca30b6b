"""The collectives that a reshard may use."""

from __future__ import annotations

from typing import Literal

__all__ = ["AMPLE", "OVERLAPS", "RETAINS_OPERAND", "Collective"]

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"
]

OVERLAPS = ("auto", "off")
"""Settings for overlapping collectives with operators: when that saves time, or never."""

AMPLE = "ample"
"""Overlap when that saves time, even if peak memory rises: the setting of some points."""

RETAINS_OPERAND: frozenset[str] = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""Collectives that read their operand until they end when they overlap operators; the others work
in their result."""
