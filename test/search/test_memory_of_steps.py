"""The search minimises the memory of training steps as programs have it: beside every plan.

``make truth-search`` has hundreds of such steps.
"""

from __future__ import annotations

import itertools
import random

import pytest
from small_models import best, missed, only
from small_steps import every_step_cost, small_steps

from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.lessons import Lessons, overhead_s
from tensoropt.compiler.search.frontier.search import SearchOptions, search_tables

STEPS = small_steps(range(12), most_plans=2600)


def test_there_are_steps() -> None:
    assert len(STEPS) > 2


@pytest.mark.parametrize("seed", STEPS)
def test_the_frontier_is_that_of_all_programs(seed: int) -> None:
    assert not missed(STEPS[seed], every_step_cost(STEPS[seed]))


@pytest.mark.parametrize("seed", STEPS)
def test_tables_charge_at_most_what_programs_take(seed: int) -> None:
    tables = STEPS[seed]
    lessons, every = Lessons(tables), every_step_cost(tables)
    while lessons.learn(solve_frontier(lessons.problem).points):
        pass
    for plan in random.Random(seed).sample(sorted(every), 20):
        time_s, memory = every[plan]
        for point in solve_frontier(only(lessons.problem, plan)).points:
            assert point.time + overhead_s(tables) == pytest.approx(time_s, rel=1e-9)
            assert point.memory <= memory


@pytest.mark.parametrize("seed", STEPS)
def test_no_plan_that_fits_a_limit_is_missed(seed: int) -> None:
    tables, costs = STEPS[seed], every_step_cost(STEPS[seed]).values()
    memories = sorted({memory for _, memory in best(costs)})
    between = (sum(pair) // 2 for pair in itertools.pairwise(memories))
    for limit in {memories[0], memories[0] + 1, *between}:
        least = min(time for time, memory in costs if memory <= limit)
        points = search_tables([tables], SearchOptions(memory_bytes=limit)).points
        found = [point.time_s for point in points if point.memory_bytes <= limit]
        assert min(found) <= least * (1 + 1e-9)  # less where collectives are sent as one
