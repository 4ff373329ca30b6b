"""Problems whose tables do not fit: solved with nodes fixed, and refused when that is hopeless."""

from __future__ import annotations

from types import SimpleNamespace

import brute
import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.search.engine import conditioned, ft
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem
from tensoropt.compiler.support.errors import UserError

CLOSE = 1e-9
TIGHT = 1500.0  # bytes: a table of six by six does not fit


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1]))
@examples(150)
def test_parts_give_the_enumerated_frontier(seed: int, epsilon: float) -> None:
    problem = brute.random_problem(np.random.default_rng(seed))
    want = brute.pareto(*brute.enumerate_costs(problem))
    try:
        frontier = ft._solve(problem, epsilon, None, Control(), {"budget": TIGHT})
    except UserError as error:
        assert ("no assignment is allowed" in str(error)) == (not want)
        return
    got = [(point.time, point.memory) for point in frontier.points]
    assert frontier.whole and not frontier.interrupted
    assert frontier.epsilon <= epsilon
    assert ft._fastest(problem, budget=TIGHT).time == pytest.approx(want[0][0])
    np.testing.assert_allclose([got[0], got[-1]], [want[0], want[-1]], rtol=CLOSE, atol=1e-12)
    if epsilon == 0:
        assert len(got) == len(want)
    for time, memory in want:
        factor = (1 + frontier.epsilon) * (1 + CLOSE)
        assert min(m for t, m in got if t <= time * factor + 1e-12) <= memory * factor + 1e-12


def _complete(nodes: int, size: int, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    edges = [
        EdgeTable(a, b, rng.integers(0, 9, (size, size))) for b in range(nodes) for a in range(b)
    ]
    pairs = [rng.integers(1, 9, (2, size)) for _ in range(nodes)]
    return Problem([NodeTable(time, memory) for time, memory in pairs], edges)


def test_fixing_one_node_is_enough_for_some() -> None:
    problem = _complete(4, 6)
    with pytest.raises(UserError, match="the tables of the search need about"):
        ft._engine(problem, budget=1.5e4)
    times, _ = brute.enumerate_costs(problem)
    assert ft._fastest(problem, budget=1.5e4).time == times.min()
    assert ft._solve(problem, 0.0, None, Control(), {"budget": 1.5e4}).points[0].time == times.min()


def test_a_time_limit_is_shared_among_the_parts() -> None:
    frontier = ft._solve(_complete(4, 6), 0.0, 0.0, Control(), {"budget": 1.5e4})
    assert frontier.points[0].time == ft._fastest(_complete(4, 6)).time


def test_no_part_begins_past_the_last_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each took a moment although time was over, of a thousand parts a minute in all."""
    begun: list[int] = []

    def solve(part, number, limit, control):  # type: ignore[no-untyped-def]
        begun.append(number)
        now[0] += 2.0
        return ft.solve_frontier(part)

    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(conditioned, "time", clock)
    problem, wide = _complete(4, 6), ft.TooWideError("too wide", 0)
    found = conditioned.frontier_of_parts(problem, wide, 1, 1.0, Control(last_limit_s=3.0), solve)
    assert len(begun) == 2
    assert not found.whole and np.isinf(found.epsilon)


def test_parts_left_out_for_lack_of_time_leave_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ft, "_run", _gives_up_after(ft._run, 2))
    problem, options = _complete(4, 6), {"budget": 1.5e4}
    frontier = ft._solve(problem, 0.0, None, Control(), options)
    assert frontier.points
    assert (frontier.whole, frontier.epsilon) == (False, np.inf)
    assert frontier.points[0].time == brute.enumerate_costs(problem)[0].min()
    with pytest.raises(OutOfTimeError):
        ft._solve(problem, 0.0, None, Control(last_limit_s=0.0), options)


def _gives_up_after(run, parts):  # type: ignore[no-untyped-def]
    """The engine, whose time is over when it has solved some parts."""
    solved: list[object] = []

    def limited(*args, **options):  # type: ignore[no-untyped-def]
        if len(solved) == parts:
            raise OutOfTimeError("over")
        solved.append(result := run(*args, **options))
        return result

    return limited


def test_the_fastest_point_is_given_up_once_time_is_over() -> None:
    engine = ft._engine(_complete(4, 100), numbers_only=True)
    with pytest.raises(ft.StoppedError):
        engine.min_time(0.0)
    assert engine.min_time() is not None


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(UserError, match=r"need about .* GiB \(the widest is 40 x 40"):
        ft.solve_frontier(_complete(14, 40))
