"""The frontier against enumeration of every choice, on random small problems."""

from __future__ import annotations

import math
from pathlib import Path
from time import monotonic

import brute
import numpy as np
import pytest
from budgets import examples
from hypothesis import example, given
from hypothesis import strategies as st

from tensoropt.compiler.cli.instance import load_instance
from tensoropt.compiler.search.engine import ft
from tensoropt.compiler.search.engine.ft import solve_frontier, solve_min_time
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem, TableFrontier
from tensoropt.compiler.support.errors import UserError

CLOSE = 1e-9
INSTANCES = Path(__file__).parent / "instances"
seeds = st.integers(0, 2**32 - 1)
many = examples(300)
some = examples(150)


def _problem(seed: int) -> tuple[Problem, list[tuple[float, float]]]:
    problem = brute.random_problem(np.random.default_rng(seed))
    return problem, brute.pareto(*brute.enumerate_costs(problem))


def _pairs(frontier: TableFrontier) -> list[tuple[float, float]]:
    return [(point.time, point.memory) for point in frontier.points]


@given(seeds)
@many
def test_exact_frontier_is_the_enumerated_one(seed: int) -> None:
    problem, want = _problem(seed)
    if not want:
        with pytest.raises(UserError, match="no assignment is allowed"):
            solve_frontier(problem)
        return
    frontier = solve_frontier(problem)
    assert frontier.epsilon == 0
    assert len(frontier.points) == len(want)
    np.testing.assert_allclose(_pairs(frontier), want, rtol=CLOSE, atol=1e-12)


@given(seeds, st.sampled_from([0, 2e7]))
@many
def test_searching_gap_by_gap_gives_the_same(seed: int, box_sums: float) -> None:
    """Small problems are solved at once; this is the way that large ones go."""
    problem, want = _problem(seed)
    if not want:
        return
    result = ft._run(problem, 0.0, None, 2, direct_sums=0, box_sums=box_sums)
    frontier = TableFrontier(ft._points(problem, result["choices"]), result["epsilon"])
    assert frontier.epsilon == 0
    assert len(frontier.points) == len(want)
    np.testing.assert_allclose(_pairs(frontier), want, rtol=CLOSE, atol=1e-12)


@given(seeds, st.sampled_from([0.01, 0.05, 0.2, 0.5, 3.0]))
@many
def test_every_point_is_within_the_epsilon_reached(seed: int, epsilon: float) -> None:
    problem, want = _problem(seed)
    if not want:
        return
    frontier = solve_frontier(problem, epsilon=epsilon)
    assert frontier.epsilon <= epsilon
    factor = (1 + frontier.epsilon) * (1 + CLOSE)
    for time, memory in want:
        near = [p for p in frontier.points if p.time <= time * factor + 1e-12]
        assert any(p.memory <= memory * factor + 1e-12 for p in near)
    first, last = _pairs(frontier)[0], _pairs(frontier)[-1]
    np.testing.assert_allclose([first, last], [want[0], want[-1]], rtol=CLOSE, atol=1e-12)


@given(seeds)
@some
def test_choices_cost_what_their_points_say(seed: int) -> None:
    problem, want = _problem(seed)
    if not want:
        return
    for point in solve_frontier(problem).points:
        tables = [(node, (at,)) for node, at in zip(problem.nodes, point.assignment, strict=True)]
        tables += [(e, (point.assignment[e.a], point.assignment[e.b])) for e in problem.edges]
        static = math.fsum(table.static_bytes[at] for table, at in tables)
        transient = max(table.transient_bytes[at] for table, at in tables)
        assert point.time == pytest.approx(math.fsum(t.time_s[at] for t, at in tables))
        assert (point.static, point.transient) == pytest.approx((static, transient))
        assert point.memory == point.static + point.transient
        assert problem.cost(point.assignment).time == point.time


@given(seeds)
@some
def test_min_time_is_the_enumerated_one(seed: int) -> None:
    problem, want = _problem(seed)
    if want:
        assert solve_min_time(problem).time == pytest.approx(want[0][0])
        return
    with pytest.raises(UserError, match="no assignment is allowed"):
        solve_min_time(problem)


def _levels(nodes: int, seed: int) -> Problem:
    """A path whose time falls as transient memory grows, every value different."""
    rng = np.random.default_rng(seed)
    transient = [np.sort(rng.permutation(1000)[:12]) + 1.0 for _ in range(nodes)]
    tables = [NodeTable(2000 / t + 1, rng.integers(0, 300, 12), t) for t in transient]
    edges = [EdgeTable(i, i + 1, rng.integers(0, 9, (12, 12))) for i in range(nodes - 1)]
    return Problem(tables, edges)


def _by_levels(problem: Problem) -> list[tuple[float, float]]:
    """The frontier of a path by a plain sweep over every value of the transient maximum."""
    found = []
    for level in sorted({t for node in problem.nodes for t in node.transient_bytes}):
        lists: list[list[tuple[float, float]]] = []
        for index, node in enumerate(problem.nodes):
            edge = problem.edges[index - 1].time_s if index else None
            lists = [_cell(node, edge, lists, k, level) for k in range(len(node.time_s))]
        found += [(t, s + level) for points in lists for t, s in points]
    return brute.pareto(*np.array(found).T)


def _cell(node, edge, lists, k, level):  # type: ignore[no-untyped-def]
    if node.transient_bytes[k] > level:
        return []
    before = [(0.0, 0.0)]
    if edge is not None:
        before = [(t + edge[j, k], s) for j, points in enumerate(lists) for t, s in points]
    own = node.time_s[k], node.static_bytes[k]
    points = [(t + own[0], s + own[1]) for t, s in before]
    return brute.pareto(*np.array(points).reshape(-1, 2).T)


@pytest.mark.parametrize("seed", range(4))
def test_many_levels_of_transient_memory(seed: int) -> None:
    problem = _levels(9, seed)
    want = _by_levels(problem)
    assert len(want) > 30
    got = _pairs(solve_frontier(problem))
    assert len(got) == len(want)
    np.testing.assert_allclose(got, want, rtol=CLOSE)


@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_dividing_boxes_gives_the_same_as_not(epsilon: float) -> None:
    problem = load_instance(INSTANCES / "alexnet_p8.npz")
    want = _pairs(solve_frontier(problem))
    result = ft._run(problem, epsilon, None, 2, direct_sums=0, box_sums=2000)
    points = ft._points(problem, result["choices"])
    got = [(point.time, point.memory) for point in points]
    if epsilon == 0:
        assert got == want
    factor = 1 + result["epsilon"]
    for time, memory in want:
        assert any(t <= time * factor and m <= memory * factor for t, m in got)


def test_one_thread_and_three_give_the_same() -> None:
    problem = _levels(9, 7)
    for epsilon in (0.0, 0.02):
        one, three = (solve_frontier(problem, epsilon=epsilon, threads=t) for t in (1, 3))
        assert _pairs(one) == _pairs(three)
        assert all(
            (a.assignment == b.assignment).all()
            for a, b in zip(one.points, three.points, strict=True)
        )


def test_no_time_at_all_still_gives_the_extremes_and_an_honest_bound() -> None:
    problem = _levels(9, 1)
    want = solve_frontier(problem)
    hasty = solve_frontier(problem, time_limit_s=0.0)
    assert _pairs(hasty)[0] == _pairs(want)[0]
    assert _pairs(hasty)[-1] == _pairs(want)[-1]
    assert hasty.epsilon > 0
    factor = 1 + hasty.epsilon
    for time, memory in _pairs(want):
        assert any(p.time <= time * factor and p.memory <= memory * factor for p in hasty.points)


@given(seeds, st.sampled_from([0.0, 0.1]), st.sampled_from([0.0, 1e6]))
@some
def test_points_known_from_elsewhere_count_as_found(
    seed: int, epsilon: float, direct_sums: float
) -> None:
    """Half of the choices are searched first; with them, the bound is that of all."""
    problem, want = _problem(seed)
    sizes = [len(node.time_s) for node in problem.nodes]
    if not want or max(sizes) < 2:
        return
    halves = [_with_part(problem, sizes.index(max(sizes)), part) for part in (0, 1)]
    if not all(brute.pareto(*brute.enumerate_costs(half)) for half in halves):
        return
    first = _pairs(solve_frontier(halves[0]))
    result = ft._run(halves[1], epsilon, 60.0, 2, direct_sums=direct_sums, box_sums=0, known=first)
    second = TableFrontier(ft._points(halves[1], result["choices"]), result["epsilon"])
    assert second.epsilon <= epsilon
    factor = (1 + second.epsilon) * (1 + CLOSE)
    for time, memory in want:
        points = [*first, *_pairs(second)]
        assert any(t <= time * factor and m <= memory * factor + 1e-9 for t, m in points)


@pytest.mark.quick
@example(2615, 0.0, 60.0)  # two points of others that beat all between them
@given(seeds, st.sampled_from([0.0, 0.05, 0.1]), st.sampled_from([0.0, 60.0]))
@many
def test_what_a_hurried_search_proves_holds_of_every_choice(
    seed: int, epsilon: float, limit_s: float
) -> None:
    """As of a large problem: lines first, then what there is time for, then the lines again."""
    problem, want = _problem(seed)
    if not want:
        return
    time, memory = brute.enumerate_costs(problem)
    time, memory = time[np.isfinite(time)], memory[np.isfinite(time)]
    known = want[:: 2 + seed % 3] if seed % 2 else []
    first = _hurried(problem, 0.5, 0.0, known, ft.NO_LINES)
    again = _hurried(problem, epsilon, limit_s, known, first["lines"])
    for result in (first, again):
        if np.isinf(result["epsilon"]):  # nothing is relatively close to what takes nothing
            assert time.min() == 0 or memory.min() == 0
            continue
        points = [*known, *_pairs(TableFrontier(ft._points(problem, result["choices"]), 0.0))]
        factor = (1 + result["epsilon"]) * (1 + CLOSE)
        for t, m in want:
            assert any(p <= t * factor + 1e-12 and q <= m * factor + 1e-9 for p, q in points)
        fastest = min(p for p, _ in points[len(known) :])
        assert fastest <= want[0][0] * (1 + result["time_epsilon"]) * (1 + CLOSE) + 1e-12
        for a, b, least in result["lines"].tolist():
            assert (a * time + b * memory).min() >= least * (1 - CLOSE)
    if limit_s:
        assert again["epsilon"] <= epsilon


def test_points_from_elsewhere_within_the_bound_end_a_search() -> None:
    """Lines alone prove that no plan is much better, so nothing is swept."""
    problem = _large()
    exact = solve_frontier(problem).points
    known = [(exact[0].time * 1.02, exact[-1].memory * 1.02)]
    found = _hurried(problem, 0.05, 60.0, known, ft.NO_LINES)
    assert found["supported"] == 0
    assert 0.0199 < found["epsilon"] <= 0.05
    alone = _hurried(problem, 0.05, 60.0, [], ft.NO_LINES)
    assert alone["supported"] > 0


def test_lines_that_are_given_do_not_come_back() -> None:
    """A caller that keeps all lines has each once."""
    problem, _ = _problem(1)
    first = _hurried(problem, 0.5, 0.0, [], ft.NO_LINES)["lines"]
    assert len(first) > 0
    again = _hurried(problem, 0.5, 0.0, [], np.tile(first, (100, 1)))["lines"]
    assert len(again) < 100


def _hurried(problem, epsilon, limit_s, known, lines):  # type: ignore[no-untyped-def]
    own = {"direct_sums": 0, "box_sums": 0, "line_sums": 0}
    return ft._run(problem, epsilon, limit_s, 2, **own, known=known, lines=lines)


def _large(nodes: int = 5, options: int = 130) -> Problem:
    """A band of two edges per node, in which an elimination is worth narrowing first."""
    rng = np.random.default_rng(1)

    def table(*shape: int) -> list[np.ndarray]:  # type: ignore[type-arg]
        transient = rng.choice([0.0, 100.0, 200.0, 400.0, 800.0], shape)
        return [rng.integers(1, 1000, shape) * 1.0, rng.integers(1, 1000, shape) * 1.0, transient]

    pairs = [(a, b) for a in range(nodes) for b in (a + 1, a + 2) if b < nodes]
    edges = [EdgeTable(a, b, *table(options, options)) for a, b in pairs]
    return Problem([NodeTable(*table(options)) for _ in range(nodes)], edges)


def test_a_large_problem_is_narrowed_without_losing_a_point() -> None:
    problem = _large()
    exact = solve_frontier(problem).points
    assert exact[0].time == solve_min_time(problem).time
    some = [(point.time * 1.01, point.memory * 1.01) for point in exact[::3]]
    for epsilon, known in ((0.05, []), (0.02, some)):
        found = solve_frontier(problem, epsilon=epsilon, known=known)
        assert _pairs(found)[0] == (exact[0].time, exact[0].memory)
        assert _pairs(found)[-1] == (exact[-1].time, exact[-1].memory)
        points = [*((p.time, p.memory) for p in found.points), *known]
        errors = [min(max(t / p.time, m / p.memory) for t, m in points) for p in exact]
        assert max(errors) - 1 <= found.epsilon <= epsilon


def _with_part(problem: Problem, node: int, part: int) -> Problem:
    """Return the problem with the first or the second half of the configurations of a node."""
    size = len(problem.nodes[node].time_s)
    barred = np.arange(size) < size // 2 if part else np.arange(size) >= size // 2
    own = problem.nodes[node]
    nodes = [*problem.nodes]
    nodes[node] = NodeTable(
        np.where(barred, np.inf, own.time_s), own.static_bytes, own.transient_bytes
    )
    return Problem(nodes, problem.edges)


def _doubling(nodes: int) -> Problem:
    """Each node is twice as slow and saves twice as much as the one before: all choices count."""
    return Problem([NodeTable([0, 2.0**n], [2.0**n, 0]) for n in range(nodes)])


def test_lists_that_outgrow_their_budget_leave_an_honest_bound() -> None:
    problem = _doubling(20)
    result = ft._run(problem, 0.0, None, 2, budget=2e6)
    assert result["short_of_memory"]
    assert 0 < result["epsilon"] < math.inf
    factor = 1 + result["epsilon"]
    points = ft._points(problem, result["choices"])
    for time in np.random.default_rng(0).integers(0, 2**20, 500):
        memory = 2**20 - 1 - time
        assert any(p.time <= time * factor and p.memory <= memory * factor for p in points)


def test_lists_within_their_budget_are_exact() -> None:
    frontier = solve_frontier(_doubling(12))
    assert (frontier.epsilon, frontier.short_of_memory) == (0, False)
    assert len(frontier.points) == 2**12


def test_no_nodes_and_no_edges() -> None:
    (point,) = solve_frontier(Problem([])).points
    assert (point.time, point.memory, len(point.assignment)) == (0, 0, 0)
    assert solve_min_time(Problem([])).time == 0
    frontier = solve_frontier(Problem([NodeTable([3, 1], [0, 5]), NodeTable([2])]))
    assert _pairs(frontier) == [(3, 5), (5, 0)]


def test_parallel_edges_add_up() -> None:
    nodes = [NodeTable([0, 0]), NodeTable([0, 0])]
    edges = [EdgeTable(0, 1, [[1, 9], [9, 9]]), EdgeTable(1, 0, [[4, 0], [9, 9]])]
    assert solve_min_time(Problem(nodes, edges)).time == 5


def test_large_penalties_do_not_blur_small_costs() -> None:
    nodes = [NodeTable([1e-3, 1.001e-3, 1e6], [3.0, 2.0, 1.0]) for _ in range(3)]
    frontier = solve_frontier(Problem(nodes))
    assert [point.memory for point in frontier.points] == [9, 8, 7, 6, 5, 4, 3]
    assert list(frontier.points[3].assignment) == [1, 1, 1]
    assert frontier.points[0].time == pytest.approx(3e-3, rel=1e-6)


def test_many_nodes_without_edges() -> None:
    """All points of a gap are sums over thousands of lists, which end in time."""
    rng, start = np.random.default_rng(0), monotonic()
    nodes = [NodeTable(rng.random(3) + 0.1, (1e6 * rng.random(3)).round()) for _ in range(2000)]
    found = solve_frontier(Problem(nodes), epsilon=0.01, time_limit_s=2.0)
    assert monotonic() - start < 20
    assert found.epsilon <= 0.01
