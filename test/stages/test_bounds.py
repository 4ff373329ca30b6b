"""Lower bounds on the time of a pipeline, against all cuts and all schedules of small ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.compiler.stages.bounds import (
    UNEVEN,
    least_interval_s,
    least_time_s,
    least_v_s,
    uneven_chunks,
)
from tensoropt.compiler.stages.families import FAMILIES, generate
from tensoropt.runtime.stages.execution import ChunkCost, execute
from tensoropt.runtime.stages.schedule import Schedule, Task, chain
from tensoropt.runtime.support.errors import UserError

TIMES = st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])] * 3, st.integers(0, 2))
ONCE_S = 0.25

Places = Sequence[tuple[float, float, float, int]]
"""The times of each place: forward, backward, gradients of weights, once per step in units."""


def costs_of(places: Places, cuts: Sequence[int]) -> tuple[list[ChunkCost], list[float]]:
    parts = [places[a:b] for a, b in itertools.pairwise([0, *cuts, len(places)])]
    sums = [[float(sum(column)) for column in zip(*part, strict=True)] for part in parts]
    return [ChunkCost(*own[:3]) for own in sums], [ONCE_S * own[3] for own in sums]


def time_s(schedule: Schedule, costs: Sequence[ChunkCost], once_s: Sequence[float]) -> float:
    ends = execute(schedule, costs).ends_s
    own = [0.0] * schedule.stages
    for place, more_s in zip(schedule.places, once_s, strict=True):
        own[place] += more_s
    return max(end[-1] + more_s for end, more_s in zip(ends, own, strict=True))


def step_times_s(places: Places, batches: int) -> tuple[float, tuple[list[float], list[float]]]:
    """Return the time of a step on one stage, and of its places: forward, and in all."""
    forward, every = [own[0] for own in places], [sum(own[:3]) for own in places]
    return batches * sum(every) + ONCE_S * sum(own[3] for own in places), (forward, every)


def bound_s(
    places: Places, stages: int, batches: int, chunks: int = 1, early: float = 0.5
) -> float:
    return least_time_s(*step_times_s(places, batches), stages, batches, chunks, early)


def bound_of_v_s(
    places: Places, stages: int, batches: int, uneven: tuple[float, float] = (UNEVEN, UNEVEN)
) -> float:
    return least_v_s(*step_times_s(places, batches), stages, batches, uneven)


def both_ways_s(
    places: Places, stages: int, batches: int, chunks: int = 1, early: float = UNEVEN
) -> float:
    """Return the bound for backward passes that include the gradients of weights."""
    every = [sum(own[:3]) for own in places]
    return least_time_s(batches * sum(every), (every, every), stages, batches, chunks, early)


def every_cut(places: Places, count: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(range(1, len(places)), count - 1)


@settings(deadline=None)
@given(st.lists(TIMES, min_size=2, max_size=6), st.integers(1, 3), st.integers(1, 5))
def test_no_cut_and_no_family_is_faster(places: Places, stages: int, batches: int) -> None:
    bound, both_ways = bound_s(places, stages, batches), both_ways_s(places, stages, batches)
    for family in FAMILIES.values():
        if family.chunks == 1:
            for cuts in every_cut(places, stages):
                costs, once_s = costs_of(places, cuts)
                own = time_s(generate(family, stages, batches, costs).schedule, costs, once_s)
                assert own >= bound - 1e-6
                assert family.splits_weights or own >= both_ways - 1e-6


@settings(deadline=None)
@given(st.lists(TIMES, min_size=4, max_size=7), st.integers(2, 3), st.integers(1, 5))
def test_several_chunks_per_stage(places: Places, stages: int, batches: int) -> None:
    every = np.array([sum(own[:3]) for own in places])
    if not every.sum():
        return
    for cuts in every_cut(places, 2 * stages):
        costs, once_s = costs_of(places, cuts)
        early, late = uneven_chunks(every, cuts, stages)
        bound = bound_s(places, stages, batches, 2, early)
        both_ways = both_ways_s(places, stages, batches, 2, early)
        of_v = bound_of_v_s(places, stages, batches, (early, late))
        for family in FAMILIES.values():
            if family.chunks == 2:
                orders = generate(family, stages, batches, costs)
                own = time_s(orders.schedule, costs, once_s)
                assert own >= bound - 1e-6
                assert family.splits_weights or own >= both_ways - 1e-6
                assert orders.places[-1] > 0 or own >= of_v - 1e-6


@settings(deadline=None, max_examples=20)
@given(st.lists(TIMES, min_size=2, max_size=3), st.booleans())
def test_no_order_of_tasks_is_faster(places: Places, splits: bool) -> None:
    stages, batches, bound = 2, 2 if not splits else 1, 0.0
    bound = bound_s(places, stages, batches)
    works = "FBW" if splits else "FB"
    tasks = [
        [Task(work, batch, stage) for work in works for batch in range(batches)]  # type: ignore[arg-type]
        for stage in range(stages)
    ]
    for cuts in every_cut(places, stages):
        costs, once_s = costs_of(places, cuts)
        for orders in itertools.product(*map(itertools.permutations, tasks)):
            try:
                own = time_s(Schedule((0, 1), batches, orders, chain(2)), costs, once_s)
            except UserError:
                continue  # it waits forever
            assert own >= bound - 1e-6


@given(st.lists(TIMES, min_size=1, max_size=7), st.integers(1, 5))
def test_no_cut_has_a_shorter_interval(places: Places, stages: int) -> None:
    times = [own[0] for own in places]
    bound = least_interval_s(sum(times), np.array(times), stages, ONCE_S)
    for cuts in itertools.combinations(range(1, len(times)), stages - 1):
        ends = [0, *cuts, len(times)]
        own = max(sum(times[a:b]) for a, b in itertools.pairwise(ends)) + ONCE_S
        assert own >= bound - 1e-9


def test_equal_layers() -> None:
    places = [(1.0, 1.0, 1.0, 0)] * 64
    # Without the time to fill it would be 64 * 3 * 64 / 16 = 768.
    assert bound_s(places, 16, 64) == pytest.approx(798.0, abs=2.0)
    assert bound_s(places, 16, 64, 2) == pytest.approx(783.0, abs=2.0)
    family = FAMILIES["zb-v2"]
    costs = [ChunkCost(2.0, 2.0, 2.0)] * 32
    assert execute(generate(family, 16, 64, costs).schedule, costs).time_s == pytest.approx(798.0)


def test_few_micro_batches_through_many_stages() -> None:
    places = [(1.0, 1.0, 1.0, 0)] * 64
    # A stage gets its first micro-batch again after up to 64 seconds, with 16 of work until then.
    assert bound_s(places, 16, 8, 2) == pytest.approx(110.1, abs=0.1)
    assert bound_of_v_s(places, 16, 8) == pytest.approx(127.5)
    costs = [ChunkCost(2.0, 2.0, 2.0)] * 32
    orders = generate(FAMILIES["zb-v2"], 16, 8, costs)
    assert max(orders.run(costs)[0]) == pytest.approx(158.0)
