"""Schedules of pipelines: families, their bubbles and their memory, deadlocks and wrong text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.stages.families import FAMILIES, generate
from tensoropt.compiler.stages.names import SCHEDULES
from tensoropt.compiler.stages.orders import Orders
from tensoropt.runtime.stages.execution import ChunkCost, check_schedule, execute
from tensoropt.runtime.stages.schedule import Schedule, Task
from tensoropt.runtime.support.errors import UserError

# Of the bubble of 1F1B with equal passes, and of its memory. Published: interleaved 1/v, ZB-H1 1/3,
# V-Half 1/2 and V-Min 2/3 for many stages; all but V-Min need a few more passes to fill and drain.
BUBBLES = {
    "gpipe": (1.0, 4.0),
    "1f1b": (1.0, 1.0),
    "interleaved": (0.5, 1.47),
    "zb-h1": (0.333, 1.0),
    "zb-h2": (0.334, 1.94),
    "zb-v": (0.189, 1.0),
    "zb-v2": (0.167, 2.0),
    "v-two-thirds": (0.544, 0.69),
    "v-half": (0.59, 0.6),
    "v-min": (0.66, 0.38),
}
STAGES, MICRO_BATCHES = 16, 64
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0])


def unit_costs(name: str) -> list[ChunkCost]:
    """Return the costs of equal chunks: a stage takes a second for each kind of pass."""
    count = FAMILIES[name].chunks
    part = 1.0 / count
    return [ChunkCost(part, part, part, 0.0, 60 // count, 60 // count)] * (STAGES * count)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_its_bubble_and_its_memory(name: str) -> None:
    costs = unit_costs(name)
    found = execute(generate(FAMILIES[name], STAGES, MICRO_BATCHES).schedule, costs)
    bubble, memory = BUBBLES[name]
    of_1f1b = (found.time_s - 3 * MICRO_BATCHES) / (3 * (STAGES - 1))
    assert of_1f1b == pytest.approx(bubble, abs=0.012)
    assert max(found.kept_bytes) / (60 * STAGES) == pytest.approx(memory, abs=0.012)


def test_flags_know_the_families() -> None:
    assert tuple(FAMILIES) == SCHEDULES


def test_1f1b_keeps_as_many_micro_batches_as_stages_follow() -> None:
    schedule = generate(FAMILIES["1f1b"], 4, 8).schedule
    costs = [ChunkCost(kept_bytes=1)] * 4
    assert execute(schedule, costs).kept_bytes == (4, 3, 2, 1)
    assert schedule.texts[3].startswith("F0.3 B0.3 F1.3 B1.3")
    assert schedule.texts[2].startswith("F0.2 F1.2 B0.2 F2.2 B1.2")


def test_more_chunks_shorten_the_bubble_of_interleaved_schedules() -> None:
    for chunks in (2, 4):
        family = FAMILIES["interleaved"].with_chunks(chunks)
        part = 1.0 / chunks
        costs = [ChunkCost(part, part, part)] * (4 * chunks)
        found = execute(generate(family, 4, 8, costs).schedule, costs)
        assert found.time_s - 3 * 8 == pytest.approx(3 * 3 / chunks)


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.integers(1, 5),
    st.integers(1, 6),
    st.lists(st.tuples(*[SECONDS] * 4, *[st.integers(0, 9)] * 4), min_size=10, max_size=10),
)
def test_orders_run_as_their_schedule(
    name: str, stages: int, micro_batches: int, rows: list[tuple[float, ...]]
) -> None:
    family = FAMILIES[name]
    costs = [ChunkCost(*row) for row in rows[: stages * family.chunks]]  # type: ignore[arg-type]
    orders = generate(family, stages, micro_batches, costs)
    found = execute(orders.schedule, costs)
    ends_s, peak_bytes = orders.run(costs)
    assert ends_s == pytest.approx([own[-1] for own in found.ends_s])
    assert tuple(peak_bytes) == found.peak_bytes
    assert Orders.read(orders.schedule).schedule == orders.schedule


def test_orders_that_wait_forever() -> None:
    schedule = Schedule.parse((0, 1), 1, ["B0 F0", "F0.1 B0.1"])
    with pytest.raises(RuntimeError, match="waits forever"):
        Orders.read(schedule).run([ChunkCost()] * 2)


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.integers(1, 6),
    st.integers(1, 9),
    st.lists(st.builds(ChunkCost, SECONDS, SECONDS, SECONDS, SECONDS), min_size=12, max_size=12),
)
def test_any_costs_give_a_schedule_that_ends(
    name: str, stages: int, micro_batches: int, given: list[ChunkCost]
) -> None:
    family = FAMILIES[name]
    costs = given[: stages * family.chunks]
    schedule = generate(family, stages, micro_batches, costs).schedule
    check_schedule(schedule, trains=True)
    assert Schedule.parse(schedule.places, micro_batches, schedule.texts) == schedule
    found = execute(schedule, costs)
    works = [c.forward_s + c.backward_s + c.weights_s for c in costs]
    for stage in range(stages):
        own = [work for work, place in zip(works, schedule.places, strict=True) if place == stage]
        busy_s = micro_batches * sum(own)
        assert found.time_s - found.idle_s(stage) == pytest.approx(busy_s)
    # The first micro-batch passes all chunks forward and backward.
    passes = sum(c.forward_s + c.backward_s for c in costs) + 2 * sum(c.sent_s for c in costs[:-1])
    assert found.time_s >= passes - 1e-9


@given(
    st.sampled_from(["zb-h2", "zb-v2"]),
    st.integers(1, 5),
    st.integers(1, 9),
    st.lists(
        st.builds(
            ChunkCost, *[SECONDS] * 4, kept_bytes=st.integers(0, 9), weights_bytes=st.integers(0, 9)
        ),
        min_size=10,
        max_size=10,
    ),
    st.lists(st.integers(0, 30), min_size=5, max_size=5),
)
def test_stages_keep_no_more_than_they_have_room_for(
    name: str, stages: int, micro_batches: int, given: list[ChunkCost], more: list[int]
) -> None:
    family = FAMILIES[name]
    places = family.place(stages, family.chunks)
    costs = given[: len(places)]
    room = [float(own) for own in more[:stages]]  # in addition to one micro-batch
    for cost, place in zip(costs, places, strict=True):
        room[place] += max(cost.kept_bytes, cost.weights_bytes)
    schedule = generate(family, stages, micro_batches, costs, room).schedule
    check_schedule(schedule, trains=True)
    kept = execute(schedule, costs).kept_bytes
    assert all(own <= most for own, most in zip(kept, room, strict=True))


def test_a_result_takes_time_to_arrive() -> None:
    schedule = Schedule.parse((0, 1), 1, ["F0 B0", "F0.1 B0.1"])
    found = execute(schedule, [ChunkCost(1, 2, 3, 0.25), ChunkCost(4, 5, 6)])
    assert found.starts_s == ((0.0, 16.5), (1.25, 5.25))
    assert (found.time_s, found.idle_s(0), found.idle_s(1)) == (21.5, 15.5, 6.5)


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (
            ["F0 B0", "B0.1 F0.1"],
            "stage 1, task 0: expected F0.1 before B0.1",
        ),
        (["B0 F0", "F0.1 B0.1"], "stage 0, task 0: expected F0 before B0"),
        (["F0 W0 B0", "F0.1 B0.1 W0.1"], "stage 0, task 1: expected B0 before W0"),
        (["F0 B0"], "got: tasks for 1 stages and places 0, 1"),
        (
            ["F0 F0 B0", "F0.1 B0.1"],
            "stage 0, task 1: expected each task of its chunks once, got: F0",
        ),
        (
            ["F0 B0 F1", "F0.1 B0.1"],
            "stage 0, task 2: expected each task of its chunks once, got: F1",
        ),
        (["F0", "F0.1 B0.1"], "stage 0: expected all tasks of its chunks, got: no B0"),
        (["F0 B0", "F0.1 B0.1 W0.1"], "stage 0: expected all tasks of its chunks, got: no W0"),
        (
            ["F0 B0 F0.1", "B0.1"],
            "stage 0, task 2: expected each task of its chunks once, got: F0.1",
        ),
    ],
)
def test_wrong_schedules(orders: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        check_schedule(Schedule.parse((0, 1), 1, orders), trains=True)


def test_stages_that_wait_for_each_other() -> None:
    orders = ["F0 F0.2 F1 F1.2 B0.2 B0 B1.2 B1", "F1.1 F0.1 B0.1 B1.1"]
    with pytest.raises(UserError, match=r"stage 0 waits forever: expected F0\.1 on stage 1 to run"):
        check_schedule(Schedule.parse((0, 1, 0), 2, orders), trains=True)


@pytest.mark.parametrize("text", ["", "F", "F01", "G0", "F0.01", "F-1", "F0,1"])
def test_wrong_tasks(text: str) -> None:
    with pytest.raises(UserError, match="expected a task such as F0 or"):
        Task.parse(text)
