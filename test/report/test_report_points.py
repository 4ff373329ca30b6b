"""The points that have a name, and picking one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spots import spot

from tensoropt.compiler.errors import UserError
from tensoropt.compiler.report.points import fastest, knee, leanest, marks, pick_point


def test_names(frontier) -> None:
    assert marks(frontier.points) == {0: "fastest", 1: "knee", 3: "leanest"}


def test_one_point_has_every_name(frontier) -> None:
    assert marks(frontier.points[:1]) == {0: "fastest, leanest, knee"}
    assert marks([]) == {}


def test_no_knee_above_the_line() -> None:
    bulging = [spot(0, 1.0, 100), spot(1, 1.9, 99), spot(2, 2.0, 10)]
    assert knee(bulging).index == 0


def test_among_equals_the_better_other_figure_decides() -> None:
    same = [spot(0, 1.0, 30), spot(1, 1.0, 20), spot(2, 2.0, 20)]
    assert fastest(same).index == 1
    assert leanest(same).index == 1


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=12),
    st.integers(1, 1000),
    st.integers(1, 1000),
)
def test_the_knee_does_not_depend_on_units(pairs, time_unit: int, memory_unit: int) -> None:
    plain = [spot(i, float(t), m) for i, (t, m) in enumerate(pairs)]
    # Powers of two scale without rounding, so that ties stay ties.
    time_unit, memory_unit = 2 ** (time_unit % 20), 2 ** (memory_unit % 20)
    scaled = [spot(p.index, p.time_s * time_unit, p.memory_bytes * memory_unit) for p in plain]
    assert knee(plain).index == knee(scaled).index


@pytest.mark.parametrize(("which", "index"), [("time", 0), ("memory", 3), ("knee", 1), ("2", 2)])
def test_picks(frontier, which: str, index: int) -> None:
    assert pick_point(frontier.points, which).index == index


def test_a_pick_outside_of_the_frontier(frontier) -> None:
    with pytest.raises(UserError, match=r"that fits, from 0 to 3, got: '4'"):
        pick_point(frontier.points, "4")
    with pytest.raises(UserError, match=r"valid choices are time.*did you mean 'knee'"):
        pick_point(frontier.points, "kne")
    with pytest.raises(UserError, match="unknown point '-1'"):
        pick_point(frontier.points, "-1")
