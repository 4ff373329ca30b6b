"""What is left of the points of several searches."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from on_tensors import ON_TENSORS

from tensoropt.compiler.program.evaluate import Cost
from tensoropt.compiler.search.frontier.search import FrontierPoint, undominated, worst_bound

TABLES: Any = SimpleNamespace(device=ON_TENSORS)


def point(index: int, time_s: float, memory_bytes: int) -> FrontierPoint:
    return FrontierPoint(index, (4,), Cost(time_s, 0.0, memory_bytes, 0), {}, TABLES)


def test_undominated_points_are_sorted_by_time_and_numbered() -> None:
    kept = [point(0, 1.0, 9), point(1, 2.0, 5), point(2, 3.0, 1)]
    worse = [point(0, 3.0, 9), point(1, 2.0, 6), point(2, 3.0, 5)]
    given = [replace(one, index=7) for one in (*worse, *reversed(kept))]
    assert undominated(given) == kept
    assert undominated([]) == []


def test_what_a_process_takes_decides() -> None:
    """The second has more in tensors and less in all; the third is the other way round."""
    sizes = {0: 30, 1: 20, 2: 40}
    given = [point(0, 1.0, 5), point(1, 2.0, 6), point(2, 3.0, 4)]
    for one in given:
        vars(one)["process_bytes"] = sizes[one.index]  # as it is once it has been asked for
    assert [one.time_s for one in undominated(given)] == [1.0, 2.0]


def test_of_equal_points_one_is_left() -> None:
    assert undominated([point(0, 1.0, 9), point(1, 1.0, 9)]) == [point(0, 1.0, 9)]


@pytest.mark.parametrize(
    ("bounds", "worst"), [([0.0, 0.1], 0.1), ([0.0, None], None), ([], None), ([0.0], 0.0)]
)
def test_a_bound_holds_where_all_searches_have_one(
    bounds: list[float | None], worst: float | None
) -> None:
    assert worst_bound(bounds) == worst
