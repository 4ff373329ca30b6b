"""Names of the collectives that a reshard may use, and settings for their overlap.

Their traits are in `tensoropt.runtime.support.collectives`.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["AMPLE", "OVERLAPS", "Collective"]

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"
]

OVERLAPS = ("auto", "off")
"""Settings for overlapping collectives with operators: when that saves time, or never."""

AMPLE = "ample"
"""Overlap when that saves time, even if peak memory rises: the setting of some points."""
