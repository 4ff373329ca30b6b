"""The points that have a name, and picking one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spots import spot

from tensoropt.compiler.search.frontier.points import (
    describe_points,
    fastest,
    knee,
    leanest,
    marks,
    pick_point,
)
from tensoropt.compiler.support.errors import UserError


def test_names(frontier) -> None:
    assert marks(frontier.points) == {0: ["fastest"], 1: ["knee"], 3: ["leanest"]}
    assert [row["marks"] for row in describe_points(frontier.points)] == [
        ["fastest"],
        ["knee"],
        [],
        ["leanest"],
    ]


def test_one_point_has_every_name(frontier) -> None:
    assert marks(frontier.points[:1]) == {0: ["fastest", "leanest", "knee"]}
    assert marks([]) == {}
    assert describe_points([]) == []


def test_names_go_to_points_that_fit(frontier) -> None:
    first = [replace(point, is_above_capacity=True) for point in frontier.points]
    points = [*first[:2], *frontier.points[2:]]
    assert marks(points) == {
        0: ["above capacity"],
        1: ["above capacity"],
        2: ["fastest", "knee"],
        3: ["leanest"],
    }
    assert marks(first) == {index: ["above capacity"] for index in range(4)}


# Time (any unit):memory (MiB) of points found for real models, and those that a person may take.
RECORDED = {
    "llama of 1.1e9 parameters, 8 h200": (
        "4.675:1407 4.735:627 4.899:539 5.359:529.1 5.566:527.6",
        {1, 2},
    ),
    "two points, one of which holds all on each device": ("1:4219 1.04:533", {1}),
    "resnet50, 8 h200": (
        "0.621:52.8 0.641:35.7 0.663:22.3 0.720:20.1 0.730:15.1 0.807:13.2 0.816:9.25 0.864:8.46",
        {4, 6},
    ),
    "vgg16, 8 h200, whose slow tail saves little": (
        "2.324:537 2.329:507 2.409:491 2.499:487 2.719:484 2.98:467 3.27:464 5.21:463 7.63:458",
        {1, 2},
    ),
    "vgg19, 8 h200": (
        "3.053:121 3.143:97.7 3.256:94.3 3.262:79 3.402:74.6 3.65:70 4.13:66.6 4.5:65.5 4.76:64.6",
        {3, 4},
    ),
    "resnet50, trained on 4 cpu, where memory is dear": (
        "145:127 150:122 157:117 162:115 172:110 174:108",
        {0},
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_knee_is_one_that_people_choose(name: str) -> None:
    text, sensible = RECORDED[name]
    pairs = [[float(figure) for figure in point.split(":")] for point in text.split()]
    points = [spot(index, time, int(mib * 2**20)) for index, (time, mib) in enumerate(pairs)]
    assert knee(points).index in sensible
    tail = spot(len(points), 1000 * points[0].time_s, points[-1].memory_bytes - 1)
    assert knee([*points, tail]).index in sensible


def test_no_knee_where_memory_is_dear() -> None:
    bulging = [spot(0, 1.0, 100), spot(1, 1.9, 99), spot(2, 2.0, 20)]
    assert knee(bulging).index == 0


@pytest.mark.parametrize("saved", [0.125, 0.2, 0.5, 0.9])
def test_a_little_time_for_much_memory_is_given(saved: float) -> None:
    """One per cent of time for three of memory: the line between two points."""
    even = (1 - saved) ** (-1 / 3)
    for time_s, index in ((even * 0.999, 1), (even * 1.001, 0)):
        points = [spot(0, 1.0, 10**9), spot(1, time_s, round(10**9 * (1 - saved)))]
        assert knee(points).index == index


def test_memory_is_that_of_the_process() -> None:
    """Half the tensors are next to nothing of a process, and no tensor may count too."""
    points = [replace(spot(n, 1.0 + 0.1 * n, 4 >> n), beside_bytes=100) for n in range(3)]
    assert knee(points).index == 0
    assert leanest(points).index == 2
    points[1] = replace(points[1], beside_bytes=90)
    assert leanest(points).index == 1


def test_points_without_time_or_memory() -> None:
    assert knee([spot(0, 0.0, 100), spot(1, 1.0, 10)]).index == 0
    assert knee([spot(0, 1.0, 100), spot(1, 2.0, 0)]).index == 1


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


@pytest.mark.parametrize(
    ("which", "index"), [("fastest", 0), ("leanest", 3), ("knee", 1), ("2", 2)]
)
def test_picks(frontier, which: str, index: int) -> None:
    assert pick_point(frontier.points, which).index == index


def test_a_pick_outside_of_the_frontier(frontier) -> None:
    with pytest.raises(UserError, match=r"that fits, from 0 to 3, got: '4'"):
        pick_point(frontier.points, "4")
    with pytest.raises(UserError, match=r"valid choices are fastest.*did you mean 'knee'"):
        pick_point(frontier.points, "kne")
    with pytest.raises(UserError, match="unknown point '-1'"):
        pick_point(frontier.points, "-1")
