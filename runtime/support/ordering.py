"""The metadata key that fixes the order of the nodes of a plan's graph."""

from __future__ import annotations

__all__ = ["ORDERED"]

ORDERED = "tensoropt.ordered"
"""Set in the metadata of a graph that needs more memory in any order other than its file's."""
