"""Cost tables with more configurations per node, as on more devices."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem

__all__ = ["widen"]


def widen(problem: Problem, factor: float) -> Problem:
    """Return the problem with about ``factor`` times the configurations per node.

    Each new configuration costs as much as an old one, plus up to a fifth. Equal tables stay equal,
    so that repeated layers stay repeated. The result is deterministic.
    """
    picks = {k: _picks(k, factor) for k in {len(node.time_s) for node in problem.nodes}}
    nodes = [
        NodeTable(*(_spread(table, picks[len(table)]) for table in (n.time_s, n.static_bytes)))
        for n in problem.nodes
    ]
    edges = [
        EdgeTable(e.a, e.b, _spread(e.time_s, *(picks[k] for k in e.time_s.shape)))
        for e in problem.edges
    ]
    return Problem(nodes, edges)


def _picks(size: int, factor: float) -> NDArray[np.int64]:
    """Return the old configuration of each new one."""
    return np.sort(np.arange(round(size * factor)) % size)


def _spread(table: Floats, *picks: NDArray[np.int64]) -> Floats:
    """Return the selected entries, each enlarged by a share that depends on the table alone."""
    wide = table[np.ix_(*picks)]
    rng = np.random.default_rng(zlib.crc32(table.tobytes()))
    return np.round(wide * (1 + 0.2 * rng.random(wide.shape)))
