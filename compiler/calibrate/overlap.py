"""Measurement of the cost of overlapping a collective with operators."""

from __future__ import annotations

from pathlib import Path

from tensoropt.compiler.calibrate.basics import least_side
from tensoropt.compiler.calibrate.graphs import overlap_graph, row_of_sums
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.cost.overlap import Overlap

__all__ = ["measure_overlap", "overlap_of"]

_TINY = 256  # elements
_TIMES = 16
_PRODUCTS = 16


def measure_overlap(
    ranks: Ranks, count: int, folder: Path, seconds: float, most_bytes: int
) -> Overlap | None:
    """Return the cost of a start and a wait, and the slowdown of operators during an all-reduce.

    The all-reduce has ``most_bytes`` and all ``count`` ranks. None for one rank, or if a graph
    fails.
    """
    if count < 2:
        return None
    group = list(range(count))
    graphs = [
        row_of_sums(folder / f"sums{starts}.onnx", _TINY, group, _TIMES, starts=starts)
        for starts in (False, True)
    ]
    side, elements = least_side(ranks.options.provider), most_bytes // 4
    for sent in ("nothing", "before", "beside"):
        path = folder / f"sent_{sent}.onnx"
        graphs.append(overlap_graph(path, elements, group, (side, _PRODUCTS), sent))
    named = [
        MeasuredGraph("a collective beside products", str(path), alone=False) for path in graphs
    ]
    times_s = [time_s for time_s in ranks.times_s(named, count, seconds) if time_s is not None]
    return overlap_of(*times_s) if len(times_s) == len(graphs) else None


def overlap_of(
    plain_s: float, started_s: float, products_s: float, before_s: float, beside_s: float
) -> Overlap:
    """Return the cost of overlap from the times of five graphs, in seconds.

    ``plain_s`` and ``started_s`` are small collectives in sequence, blocking and as starts and
    waits. ``products_s`` are matrix products alone, ``before_s`` products after a collective, and
    ``beside_s`` the same products during it. The share that operators lose is 1 minus the hidden
    time, relative to the most that can be hidden: the shorter of collective and products.
    """
    start_s = max(started_s - plain_s, 0.0) / _TIMES
    sent_s = max(before_s - products_s, 0.0)
    most_s = min(sent_s, products_s)
    hidden_s = before_s - beside_s + start_s
    share = 1.0 - hidden_s / most_s if most_s > 0 else 1.0
    return Overlap(start_s, min(max(share, 0.0), 1.0))
