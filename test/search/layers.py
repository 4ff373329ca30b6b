"""Problems of many equal layers, each with a residual around its nodes."""

from __future__ import annotations

import numpy as np

from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem

__all__ = ["layered_problem"]


def layered_problem(layers: int, width: int = 12, size: int = 64, seed: int = 0) -> Problem:
    """``layers`` times the same ``width`` nodes of about ``size`` configurations, in a chain.

    The last node of a layer also hears from the last one of the layer before. Every layer has
    tables of its own, equal to those of the others.
    """
    sizes = np.random.default_rng(seed).integers(max(1, size // 2), size + 1, width)
    sizes[-1] = size
    nodes: list[NodeTable] = [_node(np.random.default_rng(seed), size)]
    edges: list[EdgeTable] = []
    for _ in range(layers):
        rng = np.random.default_rng(seed + 1)
        first = len(nodes) - 1
        for k in sizes:
            nodes.append(_node(rng, int(k)))
            edges.append(_edge(rng, nodes, len(nodes) - 2, len(nodes) - 1))
        edges.append(_edge(rng, nodes, first, len(nodes) - 1))
    return Problem(nodes, edges)


def _node(rng: np.random.Generator, size: int) -> NodeTable:
    """Time falls as memory grows, about as when a tensor is divided among more devices."""
    parts = rng.integers(1, 17, size)
    return NodeTable(rng.integers(1, 50, size) * 16 // parts, rng.integers(1, 20, size) * parts)


def _edge(rng: np.random.Generator, nodes: list[NodeTable], a: int, b: int) -> EdgeTable:
    shape = len(nodes[a].time_s), len(nodes[b].time_s)
    return EdgeTable(a, b, rng.integers(0, 40, shape) * rng.integers(0, 2, shape))
