"""The loop over candidates: several alternatives and meshes, one frontier with one bound."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from on_tensors import ON_TENSORS
from small_models import random_module, tables_of

from tensoropt.compiler.cost.process import Footprint, Process
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.program.evaluate import Cost, ProgramCost
from tensoropt.compiler.search.engine.conditioned import TooWideError
from tensoropt.compiler.search.engine.control import OutOfTimeError
from tensoropt.compiler.search.frontier import anytime, turns
from tensoropt.compiler.search.frontier.candidate import Candidate
from tensoropt.compiler.search.frontier.clock import BUSY, Clock
from tensoropt.compiler.search.frontier.lessons import Lessons
from tensoropt.compiler.search.frontier.options import SearchOptions, by_promise
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    StepPoint,
    frontier_point,
    search_candidates,
    search_tables,
    thin_out,
)
from tensoropt.compiler.search.frontier.search import _bound as bound_of
from tensoropt.compiler.search.problem.problem import Problem, TableFrontier
from tensoropt.compiler.search.problem.tables import Assignment, MeshTables
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_seconds
from tensoropt.compiler.training.alternatives import INFERENCE, Alternative
from tensoropt.runtime.layout.mesh import Mesh

TABLES: Any = SimpleNamespace(device=ON_TENSORS)


def candidate(
    mesh: tuple[int, ...], name: str = "", error: BaseException | None = None
) -> Candidate:
    """Return a candidate of a small model; making its tables raises ``error``."""

    def make() -> Any:
        if error is not None:
            raise error
        return tables_of(random_module(3), Mesh(mesh))

    return Candidate(Mesh(mesh), make, Alternative(name) if name else INFERENCE)


def searched(
    candidates: Sequence[Candidate], said: list[str] | None = None, **options: Any
) -> FrontierResult:
    say = (lambda text: None) if said is None else said.append
    return search_candidates(candidates, SearchOptions(**options), say)


def spots(result: FrontierResult) -> list[tuple[float, int]]:
    return [(point.time_s, point.memory_bytes) for point in result.points]


def test_points_of_alternatives_are_united_and_named() -> None:
    one = searched([candidate((2,))])
    both = searched([candidate((2,), "none"), candidate((2,), "light")])
    assert spots(both) == spots(one)
    assert all(isinstance(p, StepPoint) and p.recompute == "none" for p in both.points)
    assert [point.index for point in both.points] == list(range(len(both.points)))
    assert not any(isinstance(point, StepPoint) for point in one.points)
    assert both.found == 2 * one.found


def test_a_candidate_that_cannot_be_searched_is_left_out() -> None:
    wide = UserError("too large")
    found = searched([candidate((2,), "none", wide), candidate((2,), "light")])
    assert {point.recompute for point in found.points} == {"light"}  # type: ignore[attr-defined]
    (left,) = found.left_out
    assert (left.mesh, left.reason) == ((2,), "too large (recompute none)")
    every = [candidate((4,), name, wide) for name in ("none", "light")]
    (left,) = searched([candidate((2,), "none"), candidate((2,), "light"), *every]).left_out
    assert (left.mesh, left.reason) == ((4,), "too large")


def test_the_first_error_is_raised_if_no_candidate_has_a_point() -> None:
    with pytest.raises(UserError, match=r"too large \(mesh 2 and 1 other\)"):
        searched(
            [
                candidate((2,), "none", UserError("too large")),
                candidate((2,), "light", MemoryError()),
            ]
        )


def test_ctrl_c_returns_the_points_so_far() -> None:
    stopped = KeyboardInterrupt()
    found = searched(
        [candidate((2,), "none"), candidate((2,), "light", stopped), candidate((2,), "half")],
        on_interrupt="return",
    )
    assert found.interrupted
    assert spots(found) == spots(searched([candidate((2,))], epsilon=0.05))
    assert [left.reason for left in found.left_out] == ["interrupted (recompute light, half)"]
    with pytest.raises(KeyboardInterrupt):
        searched([candidate((2,), error=stopped), candidate((4,))], on_interrupt="return")
    with pytest.raises(KeyboardInterrupt):
        searched([candidate((2,)), candidate((4,), error=stopped)])


def test_a_plan_that_is_lean_enough_ends_the_search() -> None:
    enough = max(memory for _, memory in spots(searched([candidate((2,))])))
    found = searched(
        [candidate((2,)), candidate((4,), error=AssertionError())], enough_bytes=enough
    )
    assert {point.mesh for point in found.points} == {(2,)}


def test_progress_names_the_candidate() -> None:
    said: list[str] = []
    searched([candidate((2,), "none"), candidate((2,), "light")], said)
    assert said[0].startswith("recompute none, mesh 2 (1 of 2): tables, ")
    said.clear()
    searched([candidate((2,))], said)
    assert said[0].startswith("mesh 2: tables, ")


def test_progress_has_the_best_plans_so_far() -> None:
    said = list[str]()
    result = searched([candidate((4,)), candidate((2, 2))], said)
    assert "\n" not in said[0]
    rows = [line.split("  ") for line in said[-1].splitlines()[1:]]
    assert {row[-1] for row in rows} <= {"4", "2x2"}
    assert format_seconds(result.points[0].time_s) in said[-1].splitlines()[1]


def test_the_leanest_alternative_is_first_until_a_plan_fits() -> None:
    """Then every mesh in its turn has all alternatives that may fit."""
    ways = [Alternative(name) for name in ("none", "blocks", "light")]
    every = [Candidate(Mesh(mesh), lambda: None, way) for mesh in ((4, 4), (2, 8)) for way in ways]  # type: ignore[arg-type,return-value]
    plans: Any = SimpleNamespace(options=SearchOptions(memory_bytes=100), costed=[], programs=[])
    turn = turns.Turns(every, plans, Clock(None))

    def order(*costs: tuple[Candidate, float]) -> list[str]:
        plans.costed = [(one, None, None) for one, _ in costs]
        plans.programs = [(1.0, size) for _, size in costs]
        candidates = list(every)
        turn._sort_by_memory(candidates)
        return [f"{one.alternative.recompute} {one.mesh}" for one in candidates]

    none, blocks, light, *_ = every
    assert order() == order((none, 90.0)) == [f"{c.alternative.recompute} {c.mesh}" for c in every]
    assert order((none, 200.0))[:2] == ["blocks 4x4", "blocks 2x8"]
    some = order((none, 200.0), (blocks, 50.0))
    assert some == ["blocks 4x4", "light 4x4", "blocks 2x8", "light 2x8", "none 4x4", "none 2x8"]
    assert order((none, 200.0), (blocks, 50.0), (light, 150.0))[:2] == ["blocks 4x4", "blocks 2x8"]


def test_the_worst_gap_is_searched_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shallow mesh is searched coarsely first; then the gap decides, not the order."""
    order: list[tuple[tuple[int, ...], float]] = []
    run = anytime.Anytime._run

    def watched(self: anytime.Anytime, own: Candidate, limit_s: float) -> None:
        order.append((own.mesh.shape, math.inf if own.is_fresh else self.plans.gap(own) or 0.0))
        run(self, own, limit_s)

    monkeypatch.setattr(anytime.Anytime, "_run", watched)
    meshes = sorted(factorisations(8), key=by_promise)
    searched([candidate(mesh.shape) for mesh in meshes])
    shallow = [mesh.shape for mesh in meshes if len(mesh.shape) <= 2]
    assert [mesh for mesh, _ in order[: len(shallow)]] == shallow == [(2, 4), (4, 2), (8,)]
    assert sum(math.isinf(gap) for _, gap in order) == len(meshes)


def test_tables_that_lessons_made_too_wide_are_searched_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier points remain, and the search goes on to the requested bound."""
    run, refused, searches = anytime.solve_frontier, list[float](), list[float]()
    tables = tables_of(random_module(1), Mesh((4,)))

    def refusing(problem: Problem, *, epsilon: float, **options: Any) -> TableFrontier:
        if problem is not tables.problem:
            refused.append(epsilon)
            raise UserError("too wide")
        searches.append(epsilon)
        return run(problem, epsilon=epsilon, **options)

    monkeypatch.setattr(anytime, "solve_frontier", refusing)
    found = searched([Candidate(Mesh((4,)), lambda: tables)])
    assert found.points
    assert len(refused) == 1
    assert (searches[0], searches[-1]) == (refused[0], 0.0)


@pytest.mark.parametrize("seed", [0, 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.04, 1.0])
def test_tables_that_do_not_fit_the_memory_are_bounded_by_lines(
    monkeypatch: pytest.MonkeyPatch, seed: int, epsilon: float
) -> None:
    """Training of 70B on 256 devices took minutes, as its nodes were split one by one."""
    tables = tables_of(random_module(seed), Mesh((2, 2)))
    exact = searched([Candidate(Mesh((2, 2)), lambda: tables)])

    def refusing(problem: Problem, **given: Any) -> TableFrontier:
        assert not given["in_parts"]
        raise TooWideError("too wide", 0)

    monkeypatch.setattr(anytime, "solve_frontier", refusing)
    own = Candidate(Mesh((2, 2)), lambda: tables)
    found = searched([own], epsilon=epsilon, time_limit_s=60.0, must_answer=True)
    assert found.epsilon is not None and 0 <= found.epsilon < 1
    for time_s, size in spots(exact):
        factor = (1 + found.epsilon) * (1 + 1e-9)
        assert any(t <= factor * time_s and m <= factor * size for t, m in spots(found))


def test_a_bound_that_proves_nothing_is_none() -> None:
    """A plan that takes no time has no relative bound by lines."""
    gaps = SimpleNamespace(searched=[None], plans=SimpleNamespace(gap=lambda candidate: math.inf))
    assert anytime.Anytime.gaps.func(gaps) == [None]


def test_without_time_the_first_mesh_still_has_its_ends() -> None:
    found = searched(
        [candidate((2,)), candidate((2, 2)), candidate((2, 2, 2))],
        time_limit_s=0.0,
        must_answer=True,
    )
    exact = searched([candidate((2,))])
    assert spots(found)[0] == spots(exact)[0]
    assert {left.mesh for left in found.left_out} == {(2, 2), (2, 2, 2)}
    assert found.stopped == "time"


def test_a_bound_names_the_meshes_that_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns.Turns, "_expected_s", lambda self, own: math.inf)
    found = searched([candidate((2,)), candidate((2, 2)), candidate((2, 2, 2))], time_limit_s=60.0)
    assert (found.axes, found.stopped) == (2, "time")
    assert [left.mesh for left in found.left_out] == [(2, 2, 2)]
    assert searched([candidate((2,)), candidate((2, 2))], time_limit_s=60.0).axes is None


def test_a_bound_is_never_better_than_that_of_a_shallow_mesh() -> None:
    """Points of 8x8 may cover the only mesh of one axis: that does not make them exact."""
    line, square, late = candidate((64,)), candidate((8, 8)), candidate((2, 32))
    late.error = OutOfTimeError("late")
    search: Any = SimpleNamespace(candidates=[line, square, late], searched=[line, square])
    search.options, search.gaps = SearchOptions(epsilon=0.01), [0.0, 0.08]
    assert bound_of(search) == (0.08, 1)


@pytest.mark.parametrize(
    ("gap", "is_closed", "bound"),
    [
        (0.3, False, (0.02, 2)),
        (None, False, (0.02, 2)),
        (0.02, False, (0.02, None)),
        (0.04, False, (0.04, None)),
        (0.3, True, (0.3, None)),
    ],
)
def test_a_deep_mesh_that_is_cut_short_does_not_widen_the_bound(
    gap: float | None, is_closed: bool, bound: tuple[float, int | None]
) -> None:
    shallow, deep = candidate((8,)), candidate((2, 2, 2))
    deep.closed = is_closed
    search: Any = SimpleNamespace(candidates=[shallow, deep], searched=[shallow, deep])
    search.options, search.gaps = SearchOptions(epsilon=0.05), [0.02, gap]
    assert bound_of(search) == bound


def point(index: int, time_s: float, memory_bytes: int) -> FrontierPoint:
    return FrontierPoint(index, (4,), Cost(time_s, 0.0, memory_bytes, 0), {}, TABLES)


def test_points_closer_than_the_resolution_are_left_out() -> None:
    near = [point(0, 1.0, 1000), point(1, 1.5, 999), point(2, 2.0, 500), point(3, 2.001, 400)]
    kept = thin_out(near, SearchOptions(resolution=0.01))
    assert [(p.index, p.time_s, p.memory_bytes) for p in kept] == [(0, 1.0, 1000), (1, 2.001, 400)]
    assert thin_out(near, SearchOptions()) == near
    assert thin_out([], SearchOptions(resolution=0.01)) == []


def test_left_out_points_are_covered_and_neighbours_differ() -> None:
    every = [point(n, 1.003**n, round(1e9 / 1.004**n)) for n in range(300)]
    for resolution in (0.001, 0.01, 0.1):
        kept, factor = thin_out(every, SearchOptions(resolution=resolution)), 1 + resolution
        for one in every:
            assert any(
                k.time_s <= factor * one.time_s and k.memory_bytes <= factor * one.memory_bytes
                for k in kept
            )
        for faster, slower in zip(kept, kept[2:], strict=False):
            assert slower.time_s > factor * faster.time_s or (
                slower.memory_bytes * factor < faster.memory_bytes
            )


def test_a_resolution_is_coarser_for_many_points_and_heeds_the_limit() -> None:
    every = [point(n, 1.003**n, round(1e9 / 1.004**n)) for n in range(300)]
    assert len(thin_out(every, SearchOptions(most_points=25))) <= 25
    limit = every[100].memory_bytes
    kept = thin_out(every, SearchOptions(resolution=0.1, memory_bytes=limit))
    assert every[100].memory_bytes in [p.memory_bytes for p in kept]


def test_a_far_limit_costs_nothing() -> None:
    """The capacity of a device is a limit of most searches."""
    assert not SearchOptions().may_exceed(1e9)
    assert not SearchOptions(memory_bytes=10**10).may_exceed(1e9)
    assert SearchOptions(memory_bytes=2 * 10**9).may_exceed(1e9)


def test_the_bound_covers_points_that_are_left_out() -> None:
    tables = tables_of(random_module(1), Mesh((4,)))
    exact = search_tables([tables], SearchOptions())
    coarse = search_tables([tables], SearchOptions(resolution=0.5))
    assert exact.epsilon == 0
    assert len(coarse.points) < len(exact.points)
    assert coarse.epsilon is not None and 0 < coarse.epsilon <= 0.5
    for one in exact.points:
        assert any(
            max(p.time_s / one.time_s, p.memory_bytes / one.memory_bytes)
            <= 1 + coarse.epsilon + 1e-9
            for p in coarse.points
        )


class Whole(Process):
    """Memory of processes without packed and copied tensors: as the search has it."""

    def bytes(self, footprint: Footprint, ranks: int) -> int:
        return self.rest_bytes(ranks) + footprint.static_bytes + footprint.transient_bytes


@pytest.mark.parametrize(("floor_bytes", "rows"), [(2_000, 4), (100_000_000, 1)])
def test_bound_and_rows_are_about_processes(floor_bytes: int, rows: int) -> None:
    """Plans whose tensors differ by half are one row if the rest of a process is much larger."""
    device = replace(ON_TENSORS, process=Whole(floor_bytes))
    tables = tables_of(random_module(5), Mesh((2,))).moved_to(device)
    result = search_tables([tables], SearchOptions(epsilon=0.01, resolution=0.01))
    assert len(result.points) == rows
    for faster, leaner in pairwise(result.points):
        assert 1.01 * leaner.process_bytes < faster.process_bytes
    assert result.epsilon is not None
    factor = 1 + result.epsilon
    sizes, rng = [len(tables.options[node]) for node in tables.variables], np.random.default_rng(0)
    for choice in rng.integers(0, sizes, (300, len(sizes)), dtype=np.int32):
        plan = frontier_point(tables, choice)
        assert any(
            p.time_s <= factor * plan.time_s and p.process_bytes <= factor * plan.process_bytes
            for p in result.points
        )


def test_a_busy_machine_gets_a_later_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, processor = [0.0], [0.0]
    monkeypatch.setattr(
        "tensoropt.compiler.search.frontier.clock.time",
        SimpleNamespace(monotonic=lambda: wall[0], process_time=lambda: processor[0]),
    )
    clock = Clock(10.0, 5.0)
    wall[0], processor[0] = 10.0, 2.0
    assert clock.left_s == 3.0
    wall[0] = BUSY * 10.0
    assert clock.left_s == 0.0
    wall[0], processor[0] = 10.0, 8.0
    assert clock.left_s == 0.0
    assert Clock(None).left_s == math.inf
    assert time.monotonic() > 0


def test_a_run_takes_at_most_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a busy machine would end the search before its runs have had their time."""
    busy = SimpleNamespace(monotonic=lambda: 50 * time.monotonic(), process_time=time.process_time)
    monkeypatch.setattr(anytime, "time", busy)
    own, started_s = candidate((2,)), time.process_time()
    searched([own])
    assert own.run_s <= own.first_run_s <= time.process_time() - started_s


@pytest.mark.parametrize("is_cut_short", [False, True])
def test_a_run_that_is_cut_short_does_not_make_the_next_look_shorter(
    monkeypatch: pytest.MonkeyPatch, is_cut_short: bool
) -> None:
    monkeypatch.setattr(Candidate, "is_above_tolerance", is_cut_short)
    own = candidate((2,))
    own.run_s = 100.0
    anytime.Anytime([own], SearchOptions(), lambda text: None)._run(own, 1.0)
    assert (own.run_s == 100.0) == is_cut_short


def larger_programs(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Let programs need more static memory than their tables charge."""
    exact = Lessons.cost

    def scaled(self: Lessons, assignment: Assignment) -> tuple[ProgramCost, bool]:
        cost, is_new = exact(self, assignment)
        more = round((factor - 1) * cost.memory_bytes)
        return replace(cost, static_bytes=cost.static_bytes + more), is_new

    monkeypatch.setattr(Lessons, "cost", scaled)


@pytest.mark.parametrize("learns", [False, True])
def test_plans_of_other_meshes_count_with_the_costs_of_the_bound(
    monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    """The bound of tables that do not learn is about tables: programs would only widen it."""
    larger_programs(monkeypatch, 1.07)
    monkeypatch.setattr(MeshTables, "learns", learns)
    run, by_tables = anytime.solve_frontier, list[tuple[float, float]]()
    others = list[bool]()

    def watched(problem: Problem, **options: Any) -> TableFrontier:
        others.extend(pair in by_tables for pair in options["known"])
        found = run(problem, **options)
        by_tables.extend((one.time, one.memory) for one in found.points)
        return found

    monkeypatch.setattr(anytime, "solve_frontier", watched)
    searched([candidate((2, 4)), candidate((4, 2))])
    assert others
    assert not any(others) if learns else all(others)


def test_programs_short_by_more_than_the_tolerance_refine_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by less than the bound asked for, which a coarser run has already missed."""
    larger_programs(monkeypatch, 1.03)
    own, learnt = candidate((2,)), list[int]()
    search = anytime.Anytime([own], SearchOptions(epsilon=0.05), lambda text: None)
    search._run(own, 1.0)
    monkeypatch.setattr(own.known, "learn", lambda points: learnt.append(len(points)))
    for own.tolerance in (0.05, 0.01):
        search.turns._refines(own)
    assert learnt == [0, len(own.points(search.options))]
