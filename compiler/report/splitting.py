"""Notes on plans that leave devices without work of their own, or operators whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.notes import left_whole, undivided, unsplit
from tensoropt.compiler.search.frontier.request import MAX_DEVICES

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierPoint

__all__ = ["splitting_notes"]

_LITTLE = 0.05
_MOST = 0.5
"""Of the time of a model on one device."""


def splitting_notes(frontier: FrontierReport, point: FrontierPoint) -> Iterator[str]:
    """Yield a line if an axis of the mesh of ``point`` splits next to nothing: why, and what to do.

    Devices along such an axis all do the same. Otherwise yield a line if operators that no strategy
    splits take much of the time.
    """
    from tensoropt.compiler.search.frontier.shares import (
        divisible_share,
        ops_of,
        split_shares,
        whole_shares,
    )

    graph = point.tables.graph
    ops = ops_of(graph, point.tables.device)
    pairs = zip(point.mesh, split_shares(ops, point), strict=True)
    idle = [extent for extent, share in pairs if extent > 1 and share < _LITTLE]
    if not idle:
        extents = {extent for extent in point.mesh if extent > 1}
        shares = whole_shares(ops, extents, graph) if extents else {}
        if sum(shares.values()) > _LITTLE:
            yield left_whole(shares, math.prod(point.mesh))
        return

    def divisible(pieces: int) -> bool:
        return divisible_share(ops, pieces, graph.pads) >= _MOST

    parts = math.prod(point.mesh) // math.prod(idle)
    odd = next((extent for extent in idle if not divisible(extent)), None)
    if odd is None:
        yield unsplit(frontier, point, parts)
    else:
        yield undivided(frontier, point, parts, odd, _nearest(frontier.devices, divisible))


def _nearest(devices: int, divisible: Callable[[int], bool]) -> int:
    """Return the number of devices near ``devices`` that divides the model; 0 if none does."""
    near = sorted(range(2, MAX_DEVICES + 1), key=lambda n: (abs(n - devices), n))
    return next(filter(divisible, near), 0)
