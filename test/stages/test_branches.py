"""Parallel branches: where they are, the schedules of their chunks, and their bounds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from graphs.towers import Towers
from graphs.trained import LOSS
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensoropt as to
from tensoropt.compiler.planning import staged
from tensoropt.compiler.planning.staged import StagedPoint
from tensoropt.compiler.planning.staged_bounds import Bound
from tensoropt.compiler.stages.bounds import UNEVEN, least_time_s
from tensoropt.compiler.stages.branches import begin_s, branches_of, reads_of, sent_bytes
from tensoropt.compiler.stages.families import FAMILIES, generate
from tensoropt.compiler.stages.pipeline import Pipeline, pipelines_of
from tensoropt.compiler.stages.separation import branch_by_branch, separates
from tensoropt.passes import schedule
from tensoropt.runtime.stages.execution import ChunkCost, check_schedule, execute
from tensoropt.runtime.stages.schedule import Schedule
from tensoropt.runtime.support.errors import UserError

SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])
ALONE = [name for name, family in FAMILIES.items() if family.chunks == 1]
"""The families in which each chunk is a stage."""

TAKING = [name for name, family in FAMILIES.items() if family.takes_branches]


@st.composite
def flows(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Return a number of places, and pairs of places with a value from the first to the second."""
    count = draw(st.integers(2, 12))
    place = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(place, place), max_size=20))
    return count, [pair for pair in pairs if pair[0] < pair[1]]


def order_with(count: int, pairs: list[tuple[int, int]]) -> Any:
    made, read = np.array(pairs, np.int64).reshape(-1, 2).T
    every = range(count)
    return SimpleNamespace(forward_reads=(made, read), beginnings=every, first_reads=every)


def longest(count: int, pairs: list[tuple[int, int]], times: list[float], begins: set[int]) -> Any:
    """Return the longest path before each place and before the end, place by place."""
    found = [0.0] * count
    segment = list(itertools.accumulate(int(place in begins) for place in range(count)))
    for place in range(count):
        before = [u for u, r in pairs if r == place and segment[u] != segment[place]]
        before += [place - 1] if place and place not in begins else []
        found[place] = max((found[u] + times[u] for u in before), default=0.0)
    return [*found, max(own + more for own, more in zip(found, times, strict=True))]


@given(flows(), st.data(), st.integers(1, 6))
def test_branches_read_nothing_from_those_before_them(
    flow: tuple[int, list[tuple[int, int]]], data: st.DataObject, chunks: int
) -> None:
    count, pairs = flow
    times = data.draw(st.lists(SECONDS, min_size=count, max_size=count))
    assume(sum(times) > 0)
    until = [0.0, *itertools.accumulate(times)]
    half = until[-1] / chunks / 2

    def is_branch(begin: int) -> bool:
        fork = max((a for a in range(begin) if until[begin] - until[a] >= half), default=None)
        join = min(
            (e for e in range(begin, count + 1) if until[e] - until[begin] >= half), default=None
        )
        if fork is None or join is None:
            return False
        return not any(fork <= u < begin <= r < join for u, r in pairs)

    found = branches_of(order_with(count, pairs), np.array(times), np.zeros(count, int), chunks)
    assert bool(found) == (chunks > 1 and any(map(is_branch, range(1, count))))
    for own in found:
        assert is_branch(own.begin)
        assert not any(own.fork <= u < own.begin <= r < own.join for u, r in pairs)
        assert until[own.begin] - until[own.fork] >= half
        assert until[own.join] - until[own.begin] >= half
    for first, second in itertools.pairwise(found):
        assert until[second.begin] - until[first.begin] >= half


@given(flows(), st.data())
def test_the_longest_path(flow: tuple[int, list[tuple[int, int]]], data: st.DataObject) -> None:
    count, pairs = flow
    times = data.draw(st.lists(SECONDS, min_size=count, max_size=count))
    begins = data.draw(st.sets(st.integers(1, count - 1)))
    found = begin_s(order_with(count, pairs), np.array(times), sorted(begins))
    assert found.tolist() == pytest.approx(longest(count, pairs, times, begins))


@st.composite
def programs(draw: st.DrawFn, name: str) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the stage of each chunk, in order, and the chunks that each chunk reads from.

    They are of a family in which a branch forks or joins within some chunks: the parts follow each
    other.
    """
    stages, family = draw(st.integers(1, 4)), FAMILIES[name]
    own = family.place(stages, family.chunks)
    sizes = [draw(st.integers(1, 3)) for _ in own]
    begins = [0, *itertools.accumulate(sizes)]
    places = tuple(place for place, size in zip(own, sizes, strict=True) for _ in range(size))
    reads: list[set[int]] = []
    for chunk in range(len(places)):
        earlier = draw(st.sets(st.integers(0, chunk - 1))) if chunk else set()
        reads.append(earlier if chunk in begins else earlier | {chunk - 1})
    return places, tuple(tuple(sorted(own)) for own in reads)


@pytest.mark.parametrize("name", TAKING)
@given(
    st.data(),
    st.integers(1, 6),
    st.lists(st.tuples(*[SECONDS] * 4, *[st.integers(0, 9)] * 4), min_size=24, max_size=24),
    st.booleans(),
)
def test_any_program_has_a_schedule_that_ends(
    name: str,
    data: st.DataObject,
    micro_batches: int,
    rows: list[tuple[Any, ...]],
    fills: bool,
) -> None:
    program = data.draw(programs(name))
    places, _ = program
    costs = [ChunkCost(*row) for row in rows[: len(places)]]
    room = None
    if fills:
        room = [0.0] * (max(places) + 1)
        for place, own in zip(places, costs, strict=True):
            room[place] += max(own.kept_bytes, own.weights_bytes)
    stages = max(places) + 1
    orders = generate(FAMILIES[name], stages, micro_batches, costs, room, program)
    check_schedule(orders.schedule, trains=True)
    found = execute(orders.schedule, costs)
    ends_s, peak_bytes = orders.run(costs)
    assert ends_s == pytest.approx([own[-1] for own in found.ends_s])
    assert tuple(peak_bytes) == found.peak_bytes


def test_a_stage_that_waits_for_another_branch() -> None:
    orders = ["F0 B0", "B0.1 F0.1", "F0.2 B0.2"]
    reads = ((), (), (0, 1))
    with pytest.raises(UserError, match=r"stage 1, task 0: expected F0.1 before B0.1"):
        check_schedule(replace(Schedule.parse((0, 1, 2), 1, orders), reads=reads), trains=True)
    late = ["F0 B0 F1 B1", "F1.1 B1.1 F0.1 B0.1", "F0.2 B0.2 F1.2 B1.2"]
    with pytest.raises(UserError, match=r"stage 2 waits forever: expected F0.1 on stage 1"):
        check_schedule(replace(Schedule.parse((0, 1, 2), 2, late), reads=reads), trains=True)


def test_branches_shorten_1f1b_to_the_longest_path() -> None:
    """Two branches of two stages, and one more: three stages in a row, as in a chain of three."""
    reads = ((), (0,), (), (2,), (1, 3))
    costs = [ChunkCost()] * 5
    orders = generate(FAMILIES["1f1b"], 5, 8, costs, None, ((0, 1, 2, 3, 4), reads))
    three = generate(FAMILIES["1f1b"], 3, 8)
    assert orders.run(costs)[0][0] == three.run([ChunkCost()] * 3)[0][0]
    kept = [ChunkCost(kept_bytes=1)] * 5
    assert execute(orders.schedule, kept).kept_bytes == (3, 2, 3, 2, 1)


@given(flows())
def test_every_order_reads_what_is_made(flow: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = flow
    sources = [{made for made, read in pairs if read == place} for place in range(count)]
    order = branch_by_branch(sources)
    at = {place: number for number, place in enumerate(order)}
    assert sorted(order) == [*range(count)]
    assert all(at[made] < at[read] for made, read in pairs)
    chain = [{place - 1} if place else set[int]() for place in range(count)]
    assert branch_by_branch(chain) == [*range(count)]


def test_branches_in_turns_are_set_apart() -> None:
    turns = [set[int](), set[int](), {0}, {1}, {2}, {3}, {4, 5}]
    assert branch_by_branch(turns) == [0, 2, 4, 1, 3, 5, 6]


def test_the_end_of_a_tower_among_the_other() -> None:
    """Eight operations, and eight others among which the pooling of the first ones is."""
    tower = [{n - 1} if n else set[int]() for n in range(8)]
    sources = [*tower, set[int](), {8}, {9}, {7}, *({n} for n in (10, 12, 13, 14, 15)), {11, 16}]

    def separated(order: list[int]) -> list[int]:
        at = {place: number for number, place in enumerate(order)}
        pairs = sorted((at[own], at[place]) for place, each in enumerate(sources) for own in each)
        made, read = np.array(pairs).T
        return np.flatnonzero(separates(made, read, np.ones(len(order)), 6.0)).tolist()

    assert separated([*range(18)]) == []
    assert separated(branch_by_branch(sources)) == [9]


def test_a_program_that_runs_two_towers_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "lower_peak", lambda program: [*range(len(program.tasks))])
    path = Towers(**SIZES, layers=(4, 4)).build("towers").save(tmp_path)
    model = onnx.load(path)
    nodes = [*model.graph.node]
    layers = [f"tower{tower}.layer{number}" for number in range(4) for tower in range(2)]
    mixed = [node for layer in layers for node in nodes if node.name.startswith(layer)]
    del model.graph.node[:]
    model.graph.node.extend([*mixed, *(node for node in nodes if node not in mixed)])
    onnx.save(model, path)
    train = to.Training(LOSS, micro_batches=8, recompute="none")
    found = to.load(path).frontier(4, device="h100", train=train, stages=4, search="expert")
    # Not one for each layer.
    assert {len(own.branches) for own in pipelines(found, 4)} == {0, 1}


SIZES: Any = {"width": 32, "heads": 4, "sequence": 8, "classes": 16, "dtype": "float32"}


def frontier(folder: Path, stages: int, search: str = "expert", **more: Any) -> to.Frontier:
    model = to.load(Towers(**SIZES, **more).build("towers").save(folder))
    train = to.Training(LOSS, micro_batches=8, recompute="none")
    return model.frontier(stages, device="h100", train=train, stages=stages, search=search)


def pipelines(found: to.Frontier, stages: int) -> list[Pipeline]:
    devices = next(
        own.found.pipeline.devices for own in found if isinstance(own.found, StagedPoint)
    )
    return pipelines_of(devices, TAKING)


def test_towers_and_their_trunk(tmp_path: Path) -> None:
    found = frontier(tmp_path, 4, layers=(3, 3), trunk=2, end=2)
    made = pipelines(found, 4)
    assert {len(own.branches) for own in made} == {0, 1}
    (own,) = {own.branches[0] for own in made if own.branches}
    order = made[0].devices.group_times[0].order
    names = [order.graph.op(node).name for node in order.forward]
    assert names[own.begin].startswith("tower1.layer0")
    assert names[own.fork].startswith("tower0.layer0")
    assert names[own.fork - 1].startswith("trunk.layer1")
    assert not names[own.join].startswith(("tower1", "end"))
    assert [name[:4] for name in names[own.join + 1 : own.join + 3]] == ["end.", "end."]


@settings(deadline=None, max_examples=10)
@given(st.sets(st.integers(1, 60), min_size=1, max_size=6))
def test_values_of_a_chain_pass_from_chunk_to_chunk(chain_order: Any, cuts: set[int]) -> None:
    times, order = chain_order
    found = sent_bytes(order, times.bytes, sorted(cuts), [])
    assert found.tolist() == [*times.passing_bytes[sorted(cuts)], 0]
    assert reads_of(order, sorted(cuts), []) == ((), *((n,) for n in range(len(cuts))))


@pytest.fixture(scope="module")
def chain_order(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = frontier(tmp_path_factory.mktemp("chain"), 2, layers=(4,))
    times = pipelines(found, 2)[0].devices.group_times[0]
    return times, times.order


def test_each_tower_sends_to_the_sum(tmp_path: Path) -> None:
    own = next(p for p in pipelines(frontier(tmp_path, 2, layers=(2, 2), batch=2), 2) if p.branches)
    assert own.schedule.reads == ((), (), (0, 1))
    hidden, labels = 2 * 8 * 32 * 4, 2 * 8  # the first stage replaces ignored labels
    assert list(own.sent_bytes) == [hidden + labels, hidden, 0]
    assert own.costs[0].sent_s > 0 == own.costs[1].sent_s


@pytest.mark.parametrize(
    ("stages", "layers", "end"), [(4, (4, 4), 0), (4, (2, 6), 1), (8, (3, 3, 3, 3), 0)]
)
def test_branches_are_on_the_frontier(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stages: int,
    layers: tuple[int, ...],
    end: int,
) -> None:
    bounds: list[Bound] = []
    monkeypatch.setattr(staged, "time_epsilon", lambda _, own: bounds.extend(own))
    found = frontier(tmp_path, stages, "ft", layers=layers, end=end)
    kinds = {bool(own.found.pipeline.branches) for own in found}  # type: ignore[attr-defined]
    assert True in kinds
    (bound,) = bounds
    assert 0 < bound.best_s() < min(own.time_s for own in bound.pipelines)


@pytest.mark.parametrize("name", TAKING)
@given(flows(), st.data(), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None)
def test_no_cut_into_branches_is_faster(
    name: str,
    flow: tuple[int, list[tuple[int, int]]],
    data: st.DataObject,
    stages: int,
    batches: int,
) -> None:
    (count, pairs), family = flow, FAMILIES[name]
    parts = stages * family.chunks
    assume(parts <= count)
    times = data.draw(st.lists(st.tuples(*[SECONDS] * 3), min_size=count, max_size=count))
    cuts = sorted(data.draw(st.permutations(range(1, count)))[: parts - 1])
    begins = sorted(data.draw(st.sets(st.sampled_from(cuts)))) if cuts else []
    order, forward, every = order_with(count, pairs), [own[0] for own in times], [*map(sum, times)]

    def bound_s(first: list[float]) -> float:
        path_s = begin_s(order, np.array(first), begins)
        early = math.inf if family.chunks > 1 else UNEVEN
        sizes = stages, batches, family.chunks, early
        return least_time_s(batches * sum(every), (first, every), *sizes, begin_s=path_s)

    chunk = np.searchsorted(cuts, range(count), "right")
    reads = [{n - 1} if n and cuts[n - 1] not in begins else set[int]() for n in range(parts)]
    for made, read in pairs:
        reads[chunk[read]] |= {int(chunk[made])} - {int(chunk[read])}
    sums = [np.array(times)[chunk == n].sum(axis=0) for n in range(parts)]
    costs = [ChunkCost(*row.tolist()) for row in sums]
    program = family.place(stages, family.chunks), tuple(tuple(sorted(own)) for own in reads)
    own_s = max(generate(family, stages, batches, costs, None, program).run(costs)[0])
    assert own_s >= bound_s(forward) - 1e-6
    assert family.splits_weights or own_s >= bound_s(every) - 1e-6
