"""Lower bounds by messages and weights of moments, against every assignment there is."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from brute import random_problem
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from small_models import best, every_cost, small_tables

from tensoropt.compiler.search.engine.relaxation import LineBounds
from tensoropt.compiler.search.frontier import anytime
from tensoropt.compiler.search.frontier.ascents import Ascents
from tensoropt.compiler.search.frontier.candidate import Candidate
from tensoropt.compiler.search.frontier.search import (
    FrontierResult,
    SearchOptions,
    search_candidates,
    search_tables,
)
from tensoropt.compiler.search.problem.problem import Problem
from tensoropt.compiler.search.problem.tables import MeshTables

Array = npt.NDArray[np.float64]
TABLES = small_tables(range(1, 60, 2), most_plans=2000)

_Term = tuple[int, int, Array]


@dataclass
class _Case:
    """A problem with moments of several terms, and the costs of all of its assignments."""

    problem: Problem
    moments: list[list[_Term]]
    choices: list[tuple[int, ...]]
    costs: Array  # [assignment, (seconds, bytes)]

    def bounds(self) -> LineBounds:
        bounds = LineBounds([len(node.time_s) for node in self.problem.nodes])
        for number, node in enumerate(self.problem.nodes):
            bounds.add_time(number, -1, node.time_s)
            bounds.add_static(number, -1, np.ascontiguousarray(node.static_bytes))
        for edge in self.problem.edges:
            bounds.add_time(edge.a, edge.b, edge.time_s)
            bounds.add_static(edge.a, edge.b, np.ascontiguousarray(edge.static_bytes))
        for moment in self.moments:
            bounds.add_moment(moment)
        bounds.connect([float(number) for number in range(len(self.problem.nodes))])
        return bounds


def _case(seed: int) -> _Case:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    sizes = [len(node.time_s) for node in problem.nodes]
    moments = [_moment(sizes, rng) for _ in range(rng.integers(1, 5))]
    choices = [*itertools.product(*map(range, sizes))]
    costs = [_cost(problem, moments, choice) for choice in choices]
    return _Case(problem, moments, choices, np.array(costs))


def _moment(sizes: list[int], rng: np.random.Generator) -> list[_Term]:
    terms: list[_Term] = []
    for _ in range(rng.integers(1, 4)):
        a, b = rng.integers(0, len(sizes), 2).tolist()
        shape = (sizes[a],) if a == b else (sizes[a], sizes[b])
        terms.append((a, -1 if a == b else b, rng.integers(0, 9, shape).astype(np.float64)))
    return terms


def _cost(
    problem: Problem, moments: list[list[_Term]], choice: tuple[int, ...]
) -> tuple[float, float]:
    tables = [(node, (at,)) for node, at in zip(problem.nodes, choice, strict=True)]
    tables += [(edge, (choice[edge.a], choice[edge.b])) for edge in problem.edges]
    live = [
        sum(values[choice[a]] if b < 0 else values[choice[a], choice[b]] for a, b, values in terms)
        for terms in moments
    ]
    time_s = math.fsum(table.time_s[at] for table, at in tables)
    return time_s, math.fsum(table.static_bytes[at] for table, at in tables) + max(live)


@given(st.integers(0, 2**32 - 1))
@examples(300)
def test_no_assignment_lies_below_a_line(seed: int) -> None:
    case, rng = _case(seed), np.random.default_rng(seed)
    bounds, turns = case.bounds(), bool(rng.integers(2))
    at = bounds.start(float(rng.choice([0.0, 0.3, 1.0])) if not turns else 0.5)
    time_s, size = rng.uniform(1, 30, 2)
    for _ in range(3):
        bound, weight, _ = bounds.ascend(at, time_s, size, 1e3, turns, 4, 3, math.inf)
        with np.errstate(invalid="ignore"):  # an infinite time has no weight
            sums = case.costs @ np.array([weight / time_s, (1 - weight) / size])
        least = np.where(np.isfinite(case.costs[:, 0]), sums, np.inf).min()
        assert bound <= least + 1e-9


@given(st.integers(0, 2**32 - 1))
@examples(100)
def test_sums_are_those_of_the_tables(seed: int) -> None:
    case, rng = _case(seed), np.random.default_rng(seed)
    bounds = case.bounds()
    for number in rng.integers(0, len(case.choices), 5).tolist():
        time_s, static, transient = bounds.sums(case.choices[number])
        np.testing.assert_allclose((time_s, static + transient), case.costs[number], rtol=1e-12)


@given(st.integers(0, 2**32 - 1))
@examples(100)
def test_messages_are_exact_on_a_path(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 6).tolist()
    bounds = LineBounds(sizes)
    nodes = [rng.uniform(0, 9, size) for size in sizes]
    edges = [rng.uniform(0, 9, shape) for shape in itertools.pairwise(sizes)]
    for number, node in enumerate(nodes):
        bounds.add_time(number, -1, node)
    for number, edge in enumerate(edges):
        bounds.add_time(number, number + 1, edge)
    bounds.connect([float(number) for number in range(6)])
    best = nodes[0]
    for node, edge in zip(nodes[1:], edges, strict=True):
        best = (best[:, None] + edge).min(axis=0) + node
    bound, _, choices = bounds.ascend(bounds.start(1.0), 1.0, 1.0, math.inf, False, 1, 2, math.inf)
    assert bound == pytest.approx(best.min(), rel=1e-6)
    assert bounds.sums(choices[0].tolist())[0] == pytest.approx(best.min())


@given(st.integers(0, 2**32 - 1))
@examples(100)
def test_mixtures_below_a_corner_take_their_options_from_plans(seed: int) -> None:
    case, rng = _case(seed), np.random.default_rng(seed)
    allowed = [c for c, cost in zip(case.choices, case.costs, strict=True) if cost[0] < math.inf]
    if not allowed:
        return
    plans = [allowed[i] for i in rng.integers(0, len(allowed), 3).tolist()]
    bounds = case.bounds()
    options = [{plan[node] for plan in plans} for node in range(len(plans[0]))]
    corner = float(np.median([bounds.sums(plan)[0] for plan in plans])), math.inf
    for mixture in bounds.mixtures(bounds.start(0.5), plans, *corner, 0.01, math.inf).tolist():
        assert all(option in few for option, few in zip(mixture, options, strict=True))
        assert bounds.sums(mixture)[0] <= corner[0] * (1 + 1e-9)


@given(st.integers(0, 2**32 - 1))
@examples(100)
def test_lines_of_all_corners_hold(seed: int) -> None:
    case = _case(seed)
    finite = case.costs[np.isfinite(case.costs[:, 0])]
    bounds = case.bounds()
    plans: list[tuple[float, float]] = []

    def take(choice: npt.NDArray[np.int32]) -> tuple[float, float] | None:
        time_s, static, transient = bounds.sums(choice.tolist())
        if math.isinf(time_s):
            return None
        plans.append((max(time_s, 1e-9), max(static + transient, 1e-9)))
        return plans[-1]

    ascents = Ascents(bounds, take)
    ascents.bound_ends(1.0)
    for _ in range(3 if plans else 0):
        time_s, size = min(plans)[0] * 1.5, max(plan[1] for plan in plans)
        ascents.raise_bound((time_s, size), 0.01, math.inf)
    a, b, least = ascents.lines.T
    assert (finite @ np.stack([a, b]) >= least - 1e-9 * (1 + abs(least))).all()


def check_bound(tables: MeshTables, searched: FrontierResult, largest: float) -> None:
    """Check that points cover all plans of small tables within a bound of at most ``largest``."""
    assert searched.epsilon is not None
    assert searched.epsilon <= largest
    most = 1 + searched.epsilon + 1e-9
    for time_s, memory_bytes in best(every_cost(tables).values()):
        assert any(
            point.time_s <= time_s * most and point.memory_bytes <= memory_bytes * most
            for point in searched.points
        )


@pytest.mark.parametrize("seed", [*TABLES])
def test_bounds_hold_where_lines_come_first(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Candidate, "is_wide", True)
    tables = TABLES[seed]
    check_bound(tables, search_tables([tables], SearchOptions(epsilon=0.05)), 0.05)


def test_bounds_hold_where_lines_follow_far_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anytime, "FAR", -1.0)
    monkeypatch.setattr(MeshTables, "is_small", False)
    followed = 0
    for own in TABLES.values():
        candidate = Candidate(own.mesh, partial(MeshTables, own.graph, own.mesh, own.device))
        # Tables that are not small do not learn until programs are within the bound.
        check_bound(own, search_candidates([candidate], SearchOptions(epsilon=0.05)), math.inf)
        followed += candidate.has_refined
    assert followed > 3


@pytest.mark.parametrize("seed", [*TABLES])
def test_a_coarse_search_has_exact_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Candidate, "is_wide", True)
    times, sizes = zip(*every_cost(TABLES[seed]).values(), strict=True)
    points = search_tables([TABLES[seed]], SearchOptions(epsilon=1.0)).points
    assert points[0].time_s == pytest.approx(min(times))
    assert points[-1].memory_bytes == min(sizes)
