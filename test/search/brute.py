"""Random small problems, and their frontier by enumerating every choice."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem

__all__ = ["enumerate_costs", "pareto", "random_problem"]

SHAPES = ("path", "tree", "diamond", "dense", "random", "repeated", "apart")


def enumerate_costs(problem: Problem) -> tuple[Floats, Floats]:
    """(time, memory) of every choice, added up one by one with no help from Problem.cost."""
    sizes = [len(node.time_s) for node in problem.nodes]
    times, memories = [], []
    for choice in itertools.product(*(range(size) for size in sizes)):
        tables = [(node, (at,)) for node, at in zip(problem.nodes, choice, strict=True)]
        tables += [(e, (choice[e.a], choice[e.b])) for e in problem.edges]
        times.append(math.fsum(t.time_s[at] for t, at in tables))
        static = math.fsum(t.static_bytes[at] for t, at in tables)
        memories.append(static + max(t.transient_bytes[at] for t, at in tables))
    return np.array(times), np.array(memories)


def pareto(times: Floats, memories: Floats) -> list[tuple[float, float]]:
    """The points no other one beats, sorted by time."""
    points, low = [], math.inf
    for index in np.lexsort((memories, times)):
        if memories[index] < low and math.isfinite(times[index]):
            low = float(memories[index])
            points.append((float(times[index]), low))
    return points


def random_problem(rng: np.random.Generator) -> Problem:
    """At most 1500 choices; with ties, zeros, equal rows, forbidden pairs, transient memory."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    sizes = _sizes(rng)
    draw = _drawer(rng)
    pairs = _pairs(shape, len(sizes), rng)
    if shape == "repeated":
        return _repeated(sizes, pairs, draw)
    nodes = [NodeTable(*draw((size,), 0.05)) for size in sizes]
    edges = [EdgeTable(a, b, *draw((sizes[a], sizes[b]), 0.1)) for a, b in pairs]
    return Problem(nodes, edges)


def _sizes(rng: np.random.Generator) -> list[int]:
    sizes = [int(k) for k in rng.integers(1, 7, rng.integers(1, 8))]
    while math.prod(sizes) > 1500:
        sizes.pop()
    return sizes


def _pairs(shape: str, n: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    every = [(a, b) for b in range(n) for a in range(b)]
    if shape == "path" or shape == "repeated":
        return [(i, i + 1) for i in range(n - 1)]
    if shape == "tree":
        return [(int(rng.integers(b)), b) for b in range(1, n)]
    if shape == "diamond":
        return [(0, b) for b in range(1, n - 1)] + [(b, n - 1) for b in range(1, n - 1)]
    if shape == "dense":
        return every
    if shape == "apart":
        return [(a, b) for a, b in every if a % 2 == b % 2]
    pairs = [every[i] for i in rng.integers(0, len(every), n + 1)] if every else []
    return [(b, a) if rng.random() < 0.5 else (a, b) for a, b in pairs]


def _drawer(rng: np.random.Generator):  # type: ignore[no-untyped-def]
    whole, top = rng.random() < 0.6, int(rng.choice([2, 5, 30, 1000]))
    has_static, has_transient = rng.random() < 0.5, rng.random() < 0.6

    def values(shape: tuple[int, ...]) -> Floats:
        array = rng.integers(0, top, shape).astype(float) if whole else rng.random(shape) * top
        if len(array) > 1 and rng.random() < 0.2:
            array[-1] = array[0]
        return array

    def draw(shape: tuple[int, ...], forbidden: float):  # type: ignore[no-untyped-def]
        time = values(shape)
        time[rng.random(shape) < forbidden * (rng.random() < 0.5)] = np.inf
        node = len(shape) == 1
        static = values(shape) if node or has_static else None
        return time, static, values(shape) * 2 if has_transient else None

    return draw


def _repeated(sizes: list[int], pairs: list[tuple[int, int]], draw) -> Problem:  # type: ignore[no-untyped-def]
    size = min(sizes[0], 4)
    node, edge = draw((size,), 0.0), draw((size, size), 0.1)
    return Problem(
        [NodeTable(*node) for _ in sizes[:5]],
        [EdgeTable(a, b, *edge) for a, b in pairs if b < 5],
    )
