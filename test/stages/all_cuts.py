"""All cuts of a program into stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tensoropt.compiler.stages.order import Order

__all__ = ["all_cuts"]


def all_cuts(order: Order, stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the cuts with which each stage reads a parameter first."""
    last = len(order.forward)
    for cuts in itertools.combinations(order.beginnings[1:], stages - 1):
        parts = itertools.pairwise([0, *cuts, last])
        if all(any(a <= read < b for read in order.first_reads) for a, b in parts):
            yield cuts
