"""Settings for the execution of a step: overlap of collectives with operators, and launches."""

from __future__ import annotations

__all__ = ["AMPLE", "GRAPH", "LAUNCHES", "OVERLAPS"]

OVERLAPS = ("auto", "off")
"""Overlap when that saves time, or never."""

AMPLE = "ample"
"""Overlap when that saves time, even if peak memory rises: the setting of some points."""

GRAPH = "graph"
"""The whole step is one launch, a CUDA graph."""

LAUNCHES = ("nodes", GRAPH)
"""Every node is a launch, or the whole step is."""
