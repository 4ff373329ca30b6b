"""Whether collectives can run beside operators on a device, and what that takes (decision 55)."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table
from tensoropt.compiler.layout.collective import HOLDING

__all__ = ["BLOCKS", "FREES", "HOLDS", "NEVER", "Overlap", "beside", "read_overlap"]

NEVER, FREES, HOLDS, BLOCKS = range(4)
"""What an operation does to its operands if operators run beside it (``Beside`` of the engine):
it is no collective, it reads them when it begins, it reads them until it ends, none can."""


@dataclass(frozen=True)
class Overlap:
    """What it takes to begin a collective early and to wait for it late.

    ``start_s`` is what a start and its wait take more than the collective, in seconds. ``share`` is
    the part of a transfer's time that operators beside it lose: 1 where it keeps a processor
    busy that they would have, so that nothing is gained. What is under way takes no more memory
    than the program does anyway where it ``keeps_peak``.
    """

    start_s: float = 0.0
    share: float = 1.0
    keeps_peak: bool = True


def beside(kind: str) -> int:
    """Return what a step of a reshard does to its operand if operators run beside it."""
    if kind == "collective_permute":
        return BLOCKS
    if kind in HOLDING:
        return HOLDS
    return FREES if kind == "all_reduce" else NEVER


def read_overlap(table: Table) -> Overlap | None:
    """Return the table ``[overlap]``, None where it is empty."""
    if not table.names():
        return None
    found = Overlap(table.amount("start_s"), table.amount("share", at_most=1.0))
    table.reject_unread()
    return found
