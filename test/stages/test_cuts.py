"""Cuts of a sequence: parts of about equal time, and little passes between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from all_cuts import every_cut
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.stages.cuts import cut_evenly, cut_within

SLACK = 1.002


def draw_needed(data: st.DataObject, count: int) -> list[int]:
    """Draw the positions of which each part has one."""
    return sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))


def slowest(times: Sequence[float], leads: Sequence[float], cuts: Sequence[int]) -> float:
    ends = [0, *cuts, len(times)]
    return max(leads[a] + sum(times[a:b]) for a, b in itertools.pairwise(ends))


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(0, 9), st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        min_size=1,
        max_size=9,
    ),
    st.data(),
)
def test_no_cut_within_the_slack_lets_less_pass(
    rows: list[tuple[int, int, float]], data: st.DataObject
) -> None:
    times, passing = [float(time) for time, _, _ in rows], [size for _, size, _ in rows]
    leads = [0.0, *itertools.accumulate(time * share for time, _, share in rows)][:-1]
    needed = draw_needed(data, len(rows))
    parts = data.draw(st.integers(1, len(needed)))
    found = cut_evenly([times] * parts, passing, [leads] * parts, needed=needed)
    assert found == sorted(set(found))
    assert len(found) == parts - 1
    assert all(0 < cut < len(rows) for cut in found)
    every = [*every_cut(range(1, len(rows)), needed, len(rows), parts)]
    assert tuple(found) in every
    limit = min(slowest(times, leads, cuts) for cuts in every) * SLACK + 1e-6
    assert slowest(times, leads, found) <= limit
    least = min(
        sum(passing[cut] for cut in cuts)
        for cuts in every
        if slowest(times, leads, cuts) <= limit - 2e-6
    )
    assert sum(passing[cut] for cut in found) <= least


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(0, 9), st.integers(0, 30)),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_the_slowest_part_or_transfer(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    times, sent = [float(time) for time, _, _ in rows], [float(own) for _, _, own in rows]
    parts = data.draw(st.integers(1, len(rows)))

    def longest(cuts: Sequence[int]) -> float:
        return max([slowest(times, [0.0] * len(rows), cuts), *(sent[cut] for cut in cuts)])

    found = cut_evenly([times] * parts, [size for _, size, _ in rows], sent_s=[sent] * parts)
    assert len({*found} & {*range(1, len(rows))}) == parts - 1
    every = itertools.combinations(range(1, len(rows)), parts - 1)
    assert longest(found) <= min(map(longest, every)) * SLACK + 1e-6


@given(st.integers(1, 7), st.data())
def test_unlike_parts(count: int, data: st.DataObject) -> None:
    """Each part has times and a link of its own."""
    parts = data.draw(st.integers(1, count))

    def rows() -> list[list[float]]:
        row = st.lists(st.integers(1, 30).map(float), min_size=count, max_size=count)
        return data.draw(st.lists(row, min_size=parts, max_size=parts))

    times, sent = rows(), rows()

    def longest(cuts: Sequence[int]) -> float:
        ends = [0, *cuts, count]
        lengths = [sum(times[k][ends[k] : ends[k + 1]]) for k in range(parts)]
        return max(*lengths, *(sent[k][cut] for k, cut in enumerate(cuts)), 0.0)

    found = cut_evenly(times, [0] * count, sent_s=sent)
    every = [*itertools.combinations(range(1, count), parts - 1)]
    assert longest(found) <= min(map(longest, every)) * SLACK + 1e-4


@given(st.integers(1, 7), st.data())
def test_parts_have_room(count: int, data: st.DataObject) -> None:
    needed = draw_needed(data, count)
    parts = data.draw(st.integers(1, len(needed)))
    row = st.lists(st.integers(1, 30).map(float), min_size=count, max_size=count)
    times = data.draw(row)
    rooms = [
        [size / limit for size in data.draw(row)]
        for limit in data.draw(st.lists(st.integers(10, 90), min_size=parts, max_size=parts))
    ]

    def has_room(cuts: Sequence[int]) -> bool:
        ends = [0, *cuts, count]
        return all(sum(rooms[k][ends[k] : ends[k + 1]]) <= 1 + 1e-9 for k in range(parts))

    found = cut_within([times] * parts, [0] * count, rooms, needed)
    every = [*filter(has_room, every_cut(range(1, count), needed, count, parts))]
    assert (found is None) == (not every)
    if found is not None:
        least = min(slowest(times, [0.0] * count, cuts) for cuts in every)
        assert tuple(found) in every
        assert slowest(times, [0.0] * count, found) <= least * SLACK + 1e-4


def test_more_parts_than_positions() -> None:
    with pytest.raises(ValueError, match="expected 1 to 2 parts, got: 3"):
        cut_evenly([[1.0, 1.0]] * 3, [0, 0])
