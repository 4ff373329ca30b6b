"""Equal layers: solved right, and at little more than the cost of a few of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import brute
import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from layers import layered_problem

from tensoropt.compiler.search.engine import ft
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem

CLOSE = 1e-9
seeds = st.integers(0, 2**32 - 1)


def _min_time(problem: Problem, layers: int, width: int) -> float:
    """Least time by (min, +) products of the matrix of one layer."""
    matrix = _layer(problem, width)
    best = problem.nodes[0].time_s
    for _ in range(layers):
        best = np.min(best[:, None] + matrix, axis=0)
    return float(best.min())


def _layer(problem: Problem, width: int) -> Floats:
    """Least time of the first layer for each pair of choices before and at its end."""
    chain = problem.edges[: width + 1]
    total = chain[0].time_s + problem.nodes[1].time_s
    for node in range(2, width + 1):
        step = chain[node - 1].time_s + problem.nodes[node].time_s
        total = np.min(total[:, :, None] + step, axis=1)
    return np.asarray(total + chain[width].time_s)


@pytest.mark.parametrize("layers", [1, 2, 3, 12, 48])
def test_minimum_time_of_equal_layers(layers: int) -> None:
    problem = layered_problem(layers, width=5, size=6)
    want = _min_time(problem, layers, 5)
    assert ft.solve_min_time(problem).time == want
    assert ft.solve_frontier(problem, epsilon=0.05).points[0].time == want
    engine = ft._engine(problem, always_share=True)
    assert problem.cost(engine.min_time()).time == want


@given(seeds, st.sampled_from([0.0, 0.03]))
@examples(250)
def test_the_order_for_equal_parts_finds_the_same(seed: int, epsilon: float) -> None:
    """Small problems do not need that order; this takes it all the same."""
    problem = brute.random_problem(np.random.default_rng(seed))
    want = brute.pareto(*brute.enumerate_costs(problem))
    if not want:
        return
    result = ft._run(problem, epsilon, None, 2, direct_sums=0, always_share=True)
    got = [(p.time, p.memory) for p in ft._points(problem, result["choices"])]
    assert result["epsilon"] <= epsilon
    np.testing.assert_allclose([got[0], got[-1]], [want[0], want[-1]], rtol=CLOSE, atol=1e-12)
    factor = (1 + result["epsilon"]) * (1 + CLOSE)
    for least_time, memory in want:
        near = [m for t, m in got if t <= least_time * factor + 1e-12]
        assert min(near) <= memory * factor + 1e-12
    if epsilon == 0:
        assert len(got) == len(want)


def _seconds(call: Callable[[], object]) -> float:
    """The best of five, since other programs run on the machine."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def test_eight_times_the_layers_cost_little_more() -> None:
    few, many = (ft._engine(layered_problem(n, size=48)) for n in (12, 96))
    assert _seconds(many.min_time) < 4 * _seconds(few.min_time) + 0.002


def test_equal_tables_of_different_shapes_are_not_mixed_up() -> None:
    values = np.arange(12.0)
    nodes = [NodeTable([0, 50, 100]), NodeTable([9, 5, 0, 50]), NodeTable(np.zeros(6))]
    nodes += [NodeTable([70, 0])]
    edges = [EdgeTable(0, 1, values.reshape(3, 4)), EdgeTable(3, 2, values.reshape(2, 6))]
    problem = Problem(nodes, edges)
    times, _ = brute.enumerate_costs(problem)
    assert ft.solve_min_time(problem).time == times.min()
    # The last configurations are worse than others whatever the neighbour is, and go first.
    assert [p.time for p in ft.solve_frontier(problem).points] == [times.min()]


def test_parallel_edges_in_both_directions_are_turned() -> None:
    rng = np.random.default_rng(3)
    nodes = [NodeTable(rng.integers(0, 9, k), rng.integers(0, 9, k)) for k in (3, 4, 3, 4)]
    there, back = rng.integers(0, 30, (3, 4)), rng.integers(0, 30, (4, 3))
    edges = [EdgeTable(a, a + 1, there) for a in (0, 2)] + [
        EdgeTable(a + 1, a, back) for a in (0, 2)
    ]
    problem = Problem(nodes, [*edges, EdgeTable(1, 2, rng.integers(0, 30, (4, 3)))])
    want = brute.pareto(*brute.enumerate_costs(problem))
    assert [(p.time, p.memory) for p in ft.solve_frontier(problem).points] == want


def test_steps_grow_with_the_logarithm_of_the_layers() -> None:
    computed = []
    for layers in (12, 24, 48, 96):
        engine = ft._engine(layered_problem(layers, width=5, size=6), always_share=True)
        steps, distinct = engine.steps()
        assert steps > 10 * layers
        computed.append(distinct)
    assert max(np.diff(computed)) <= 4
    assert computed[-1] < 50


def _chain_frontier(problem: Problem, layers: int, width: int) -> list[tuple[float, float]]:
    """All Pareto points of the layers, by (time, memory) lists per choice at the end of each."""
    at: list[list[tuple[float, float]]] = [
        [(t, m)]
        for t, m in zip(problem.nodes[0].time_s, problem.nodes[0].static_bytes, strict=True)
    ]
    first = list(itertools.product(*(range(len(n.time_s)) for n in problem.nodes[: width + 1])))
    costs = [(c[0], c[-1], *_layer_cost(problem, c, width)) for c in first]
    for _ in range(layers):
        found: list[list[tuple[float, float]]] = [[] for _ in problem.nodes[width].time_s]
        for a, b, time_s, memory in costs:
            found[b] += [(t + time_s, m + memory) for t, m in at[a]]
        at = [brute.pareto(*np.array(points).T) for points in found]
    return brute.pareto(*np.array([point for points in at for point in points]).T)


def _layer_cost(problem: Problem, choice: tuple[int, ...], width: int) -> tuple[float, float]:
    """Time and memory of the first layer, its node before left out."""
    nodes = list(zip(problem.nodes[1 : width + 1], choice[1:], strict=True))
    edges = problem.edges[: width + 1]
    time_s = sum(n.time_s[k] for n, k in nodes) + sum(
        e.time_s[choice[e.a], choice[e.b]] for e in edges
    )
    return float(time_s), float(sum(n.static_bytes[k] for n, k in nodes))


@pytest.mark.parametrize("layers", [2, 5, 8])
def test_the_exact_frontier_of_equal_layers(layers: int) -> None:
    problem = layered_problem(layers, width=3, size=4)
    got = [(p.time, p.memory) for p in ft.solve_frontier(problem).points]
    assert got == _chain_frontier(problem, layers, 3)
