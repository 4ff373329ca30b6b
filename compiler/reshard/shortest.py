"""Batched shortest paths in a small graph, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Edges", "ShortestPaths"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Edges times sources per batch: small enough for a core's cache.
_BLOCK = 1 << 17


@dataclass(frozen=True)
class Edges:
    """The edges of a graph, sorted by ``dst``.

    Ties between paths go to the first edge. Times are positive; ``peak_bytes`` is the memory in use
    while an edge runs.
    """

    src: Ints
    dst: Ints
    time_s: Floats
    peak_bytes: Floats


@dataclass(frozen=True)
class _Row:
    """Time, peak memory and last edge of the paths from one source to every node.

    ``last`` is the number of edges for the source itself and for nodes that it does not reach.
    """

    time_s: Floats
    peak_bytes: Floats
    last: Ints


class ShortestPaths:
    """Shortest paths between nodes ``0 .. nodes - 1``, computed lazily and cached by source.

    Bellman-Ford over all sources in parallel: paths have few steps, so it converges in few rounds.
    """

    def __init__(self, nodes: int, edges: Edges) -> None:
        self._nodes, self._edges = nodes, edges
        self._starts = np.flatnonzero(np.diff(edges.dst, prepend=-1))
        self._heads = edges.dst[self._starts]
        self._rows: dict[int, _Row] = {}

    def rows(self, sources: Sequence[int]) -> tuple[Floats, Floats]:
        """Return (time_s, peak_bytes) from each source to every node, as [source, node]."""
        missing = [source for source in dict.fromkeys(sources) if source not in self._rows]
        block = max(8, _BLOCK // max(1, len(self._edges.src)))
        for start in range(0, len(missing), block):
            self._solve(np.array(missing[start : start + block]))
        rows = [self._rows[source] for source in sources]
        return np.stack([r.time_s for r in rows]), np.stack([r.peak_bytes for r in rows])

    def trace(self, source: int, target: int) -> list[int]:
        """Return the edges of the path from ``source`` to ``target``, which must be reachable."""
        self.rows([source])
        last, path = self._rows[source].last, list[int]()
        while target != source:
            edge = int(last[target])
            path.append(edge)
            target = int(self._edges.src[edge])
        return path[::-1]

    def _solve(self, sources: Ints) -> None:
        time_s = np.full((self._nodes, len(sources)), np.inf)
        time_s[sources, np.arange(len(sources))] = 0.0
        last = np.full(time_s.shape, len(self._edges.src))
        if len(self._starts):
            last[self._heads] = self._relax(time_s)
        peak_bytes = self._peaks(last)
        for column, source in enumerate(sources.tolist()):
            row = _Row(time_s[:, column], peak_bytes[:, column], last[:, column])
            self._rows[source] = row

    def _relax(self, time_s: Floats) -> Ints:
        """Lower ``time_s`` [node, source] to the shortest; return the last edge per head."""
        edges = self._edges
        while True:
            reached = time_s[edges.src] + edges.time_s[:, None]
            best = np.minimum(np.minimum.reduceat(reached, self._starts), time_s[self._heads])
            if np.array_equal(best, time_s[self._heads]):
                break
            time_s[self._heads] = best
        # An edge is on a shortest path if it is tight. Times grow along the path: it has no cycle.
        on_path = (reached == time_s[edges.dst]) & (time_s[edges.src] < reached)
        numbers = np.arange(len(edges.src))[:, None]
        return np.minimum.reduceat(np.where(on_path, numbers, len(edges.src)), self._starts)

    def _peaks(self, last: Ints) -> Floats:
        """Return the largest peak along the path to each [node, source]."""
        before = np.append(self._edges.src, 0)[last]
        own = np.append(self._edges.peak_bytes, 0.0)[last]
        peak, columns = own, np.arange(last.shape[1])
        while True:
            longer = np.where(own > 0, np.maximum(own, peak[before, columns]), 0.0)
            if np.array_equal(longer, peak):
                return peak
            peak = longer
