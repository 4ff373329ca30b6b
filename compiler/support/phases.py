"""The names of the compiler's phases, and of the parts of a training step."""

from __future__ import annotations

__all__ = ["PHASE_NAMES", "STEP_PARTS"]

PHASE_NAMES = ("import", "prepare", "train", "rules", "search", "reshard", "partition")
"""The phases in order; export, the last one, leaves the IR."""

STEP_PARTS = ("forward", "recompute", "backward", "update")
"""The parts of a training step in order. The first three form the graph of gradients, the update is
a separate graph. Recomputation is interleaved with the backward ops."""
