"""Overlap of collectives with operators on a device, and its cost (decision 55)."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = [
    "BLOCKS",
    "FREES",
    "HOLDS",
    "NEVER",
    "Overlap",
    "overlap_effect",
    "read_overlap",
    "shown_share",
]

NEVER, FREES, HOLDS, BLOCKS = range(4)
"""Effect of an operation on its operands if operators overlap it (``Beside`` of the engine).

``NEVER``: it is no collective. ``FREES``: it reads its operands when it starts. ``HOLDS``: it reads
them until it ends. ``BLOCKS``: it cannot overlap.
"""


@dataclass(frozen=True)
class Overlap:
    """Cost of starting a collective early and waiting for it late.

    ``start_s`` is the overhead of a start and its wait over the plain collective, in seconds.
    ``share`` is the fraction of a transfer's time that overlapping operators lose: 1 if the
    transfer occupies a processor they would use, so that overlap gains nothing. With
    ``keeps_peak``, collectives in flight may not raise the peak memory of the program.
    """

    start_s: float = 0.0
    share: float = 1.0
    keeps_peak: bool = True


def shown_share(
    sent_s: float, messages: int, compute_s: float, ranks: int, overlap: Overlap
) -> float:
    """Return the share of the time of a ring's messages that its turns do not hide.

    All ``messages`` take ``sent_s``, and all turns ``compute_s``, one turn for each of the ranks.
    Messages travel during all turns but one. The share is 1 if overlap gains nothing.
    """
    hidden_s = min(sent_s, compute_s * (ranks - 1) / ranks)
    saved_s = hidden_s * (1.0 - overlap.share) - messages * overlap.start_s
    return 1.0 - max(saved_s, 0.0) / sent_s if sent_s else 1.0


def overlap_effect(kind: str) -> int:
    """Return the effect of a reshard step on its operand if operators overlap it."""
    traits = COLLECTIVES.get(kind)
    if traits is None:  # a local copy
        return NEVER
    if not traits.can_overlap:
        return BLOCKS
    return HOLDS if traits.retains_operand else FREES


def read_overlap(table: Table) -> Overlap | None:
    """Return the table ``[overlap]``, ``None`` if it is empty."""
    if not table.names():
        return None
    found = Overlap(table.amount("start_s"), table.amount("share", at_most=1.0))
    table.reject_unread()
    return found
