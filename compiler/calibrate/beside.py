"""What it takes to let a collective run beside operators on this machine."""

from __future__ import annotations

from pathlib import Path

from tensoropt.compiler.calibrate.basics import least_side
from tensoropt.compiler.calibrate.graphs import beside_graph, row_of_sums
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.cost.overlap import Overlap

__all__ = ["measure_overlap", "overlap_of"]

_TINY = 256  # elements
_TIMES = 16
_PRODUCTS = 16


def measure_overlap(
    ranks: Ranks, count: int, folder: Path, seconds: float, most_bytes: int
) -> Overlap | None:
    """Return what a start and a wait cost, and what operators lose beside an all-reduce of
    ``most_bytes`` over all ``count`` ranks; None with one rank, or where a graph could not be run.
    """
    if count < 2:
        return None
    group = list(range(count))
    graphs = [
        row_of_sums(folder / f"sums{starts}.onnx", _TINY, group, _TIMES, starts=starts)
        for starts in (False, True)
    ]
    side, elements = least_side(ranks.provider), most_bytes // 4
    for sent in ("nothing", "before", "beside"):
        path = folder / f"sent_{sent}.onnx"
        graphs.append(beside_graph(path, elements, group, (side, _PRODUCTS), sent))
    named = [
        MeasuredGraph("a collective beside products", str(path), alone=False) for path in graphs
    ]
    times_s = [time_s for time_s in ranks.times_s(named, count, seconds) if time_s is not None]
    return overlap_of(*times_s) if len(times_s) == len(graphs) else None


def overlap_of(
    plain_s: float, started_s: float, products_s: float, before_s: float, beside_s: float
) -> Overlap:
    """Return what follows from the seconds of five graphs.

    Two are small collectives in a row, at once and as starts and waits; then come products alone,
    products behind a collective, and the same products beside it. What they take less beside it is
    what the link gives back, of what could be at most: the shorter of both.
    """
    start_s = max(started_s - plain_s, 0.0) / _TIMES
    sent_s = max(before_s - products_s, 0.0)
    most_s = min(sent_s, products_s)
    hidden_s = before_s - beside_s + start_s
    share = 1.0 - hidden_s / most_s if most_s > 0 else 1.0
    return Overlap(start_s, min(max(share, 0.0), 1.0))
