"""Names of the families of schedules."""

from __future__ import annotations

__all__ = ["SCHEDULES"]

SCHEDULES = (
    *("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-v2"),
    *("v-two-thirds", "v-half", "v-min"),
)
"""The names alone: flags are read without the families."""
