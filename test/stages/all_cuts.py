"""All cuts into parts, of which each has one of the positions that are needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tensoropt.compiler.stages.order import Order

__all__ = ["all_cuts", "every_cut"]


def every_cut(
    beginnings: Iterable[int], needed: Sequence[int], count: int, parts: int
) -> Iterator[tuple[int, ...]]:
    """Yield the cuts of ``count`` positions; each part has one of the positions ``needed``."""
    for cuts in itertools.combinations(beginnings, parts - 1):
        ends = itertools.pairwise([0, *cuts, count])
        if all(any(a <= own < b for own in needed) for a, b in ends):
            yield cuts


def all_cuts(order: Order, stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the cuts with which each stage reads a parameter first."""
    return every_cut(order.beginnings[1:], order.first_reads, len(order.forward), stages)
