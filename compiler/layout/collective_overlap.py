"""Settings for overlapping collectives with operators."""

from __future__ import annotations

__all__ = ["AMPLE", "OVERLAPS"]

OVERLAPS = ("auto", "off")
"""Overlap when that saves time, or never."""

AMPLE = "ample"
"""Overlap when that saves time, even if peak memory rises: the setting of some points."""
