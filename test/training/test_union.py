"""The frontiers of several training steps become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from on_tensors import ON_TENSORS

from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult, LeftOut
from tensoropt.compiler.search.frontier.steps import StepPoint, search_steps
from tensoropt.compiler.search.problem.evaluate import Cost
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import Alternative

Spot = tuple[float, int]
"""Seconds and bytes."""


def result(spots: Sequence[Spot], **more: Any) -> FrontierResult:
    tables: Any = SimpleNamespace(device=ON_TENSORS)
    points = [
        FrontierPoint(index, (2,), Cost(time_s, 0.0, size, 0), {}, tables)
        for index, (time_s, size) in enumerate(spots)
    ]
    held = {"epsilon": 0.0, "time_epsilon": 0.0, "found": len(spots), **more}
    return FrontierResult(points, **held)


def searched(
    answers: Mapping[str, FrontierResult | BaseException],
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> tuple[FrontierResult, list[float | None]]:
    """Search steps whose graphs are their own names; return the union and the limits given."""
    limits: list[float | None] = []

    def search(graph: Any, limit_s: float | None, tell: Callable[[str], None]) -> FrontierResult:
        limits.append(limit_s)
        tell("mesh 2: tables")
        answer = answers[graph]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    graphs: Any = {Alternative(name): name for name in answers}
    return search_steps(graphs, search, say, [(2,)], **options), limits


def spots(found: FrontierResult) -> list[tuple[float, int, str]]:
    assert all(isinstance(point, StepPoint) for point in found.points)
    assert [point.index for point in found.points] == list(range(len(found.points)))
    return [(p.time_s, p.memory_bytes, p.recompute) for p in found.points]  # type: ignore[attr-defined]


NONE = result([(1.0, 9), (3.0, 7)])
LIGHT = result([(2.0, 6), (4.0, 5)], epsilon=0.1, found=5)


def test_the_better_of_both_stay() -> None:
    found, limits = searched({"none": NONE, "light": LIGHT})
    assert spots(found) == [(1.0, 9, "none"), (2.0, 6, "light"), (4.0, 5, "light")]
    assert (found.epsilon, found.time_epsilon, found.found) == (0.1, 0.0, 7)
    assert limits == [None, None]


def test_of_equal_points_the_first_stays() -> None:
    found, _ = searched({"none": NONE, "light": NONE})
    assert spots(found) == [(1.0, 9, "none"), (3.0, 7, "none")]


def test_no_bound_of_one_is_no_bound_of_all() -> None:
    assert searched({"none": NONE, "light": result([(2.0, 6)], epsilon=None)})[0].epsilon is None


def test_meshes_left_out_name_their_step() -> None:
    light = result([(2.0, 6)], left_out=[LeftOut((4,), "no time was left")])
    (left,) = searched({"none": NONE, "light": light})[0].left_out
    assert (left.mesh, left.reason) == ((4,), "no time was left (recompute light)")


def test_a_mesh_left_out_for_all_steps_is_named_once() -> None:
    late = result([(2.0, 6)], left_out=[LeftOut((4,), "no time was left")])
    found = searched({"none": late, "light": late})[0]
    assert found.left_out == [LeftOut((4,), "no time was left")]


def test_a_step_that_cannot_be_searched_is_left_out() -> None:
    found, _ = searched({"none": UserError("too large"), "light": LIGHT})
    assert [recompute for _, _, recompute in spots(found)] == ["light", "light"]
    assert found.left_out == [LeftOut((2,), "too large (recompute none)")]
    with pytest.raises(UserError, match="too large"):
        searched({"none": UserError("too large"), "light": UserError("also")})


def test_ctrl_c_returns_what_was_found() -> None:
    found, limits = searched({"none": NONE, "light": KeyboardInterrupt(), "half": LIGHT})
    assert (spots(found), found.interrupted) == (spots(searched({"none": NONE})[0]), True)
    assert len(limits) == 2
    assert [left.reason for left in found.left_out] == ["interrupted (recompute light, half)"]
    with pytest.raises(KeyboardInterrupt):
        searched({"none": KeyboardInterrupt(), "light": LIGHT})


def test_an_interrupted_search_is_the_last() -> None:
    found, limits = searched({"none": result([(1.0, 9)], interrupted=True), "light": LIGHT})
    assert (found.interrupted, len(limits)) == (True, 1)


def test_enough_is_the_end() -> None:
    assert len(searched({"none": NONE, "light": LIGHT}, enough_bytes=7)[1]) == 1
    assert len(searched({"none": NONE, "light": LIGHT}, enough_bytes=6)[1]) == 2


def test_the_time_is_shared() -> None:
    _, limits = searched({"none": NONE, "light": LIGHT}, time_limit_s=1000.0)
    assert limits == pytest.approx([500.0, 1000.0], rel=0.01)


def test_progress_names_the_step() -> None:
    said: list[str] = []
    searched({"none": NONE, "light": LIGHT}, said.append)
    assert said == ["recompute none, mesh 2: tables", "recompute light, mesh 2: tables"]
    said.clear()
    searched({"light": LIGHT}, said.append)
    assert said == ["mesh 2: tables"]
