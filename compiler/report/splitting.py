"""Notes on plans with devices that repeat the same work, or with large unsplit operators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensoropt.compiler.planning.request import MANY_DEVICES
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.notes import undivided_note, unsplit_note, unsplit_ops_note

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierPoint

__all__ = ["splitting_notes"]

# Fractions of the time of a model on one device.
_LITTLE = 0.05
_MOST = 0.5


def splitting_notes(frontier: FrontierReport, point: FrontierPoint) -> Iterator[str]:
    """Yield a line with cause and remedy if an axis of the mesh of ``point`` splits almost nothing.

    Devices along this axis all do the same work. Otherwise yield a line if operators that no
    strategy splits take much of the time.
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
            yield unsplit_ops_note(shares, math.prod(point.mesh))
        return

    def divisible(pieces: int) -> bool:
        return divisible_share(ops, pieces, graph.pads) >= _MOST

    parts = math.prod(point.mesh) // math.prod(idle)
    odd = next((extent for extent in idle if not divisible(extent)), None)
    if odd is None:
        yield unsplit_note(frontier, point, parts)
    else:
        most = max(frontier.devices, MANY_DEVICES)
        near = sorted(range(2, most + 1), key=lambda n: (abs(n - frontier.devices), n))
        better = next(filter(divisible, near), 0)
        yield undivided_note(frontier, point, parts, odd, better)
