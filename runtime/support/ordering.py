"""What the graph of a plan says of the order of its nodes."""

from __future__ import annotations

__all__ = ["ORDERED"]

ORDERED = "tensoropt.ordered"
"""The key in the metadata of a graph that takes more memory in another order than that of its
file."""
