"""Stages on unlike devices: their cuts, their order, their memory, and the bound."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from all_cuts import all_cuts
from graphs.gpt import Gpt
from hypothesis import given
from hypothesis import strategies as st
from unlike_devices import described

import tensoropt as to
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.search.frontier.points import stage_devices_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.bounds import least_shared_s
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError

BATCHES = 8


@pytest.fixture(scope="module")
def model(folder: Path) -> to.Model:
    gpt = Gpt(layers=8, width=64, heads=4, vocabulary=96, sequence=16, batch=2, dtype="float32")
    return to.load(gpt.build("gpt").save(folder))


def training(**more: object) -> to.Training:
    return to.Training("softmax-cross-entropy:scores,labels", micro_batches=BATCHES, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(model: to.Model, both: str) -> to.Frontier:
    return model.frontier(both, train=training(recompute="none"), search="expert", stages="auto")


def staged(frontier: to.Frontier) -> list[FrontierPoint]:
    return [point.found for point in frontier if stage_devices_of(point.found)]


def test_faster_devices_get_more_of_the_work(found: to.Frontier) -> None:
    pipeline = staged(found)[0].pipeline  # type: ignore[attr-defined]
    names = [point.tables.device.name for point in pipeline.devices.points]
    shares = dict(zip(names, pipeline.shares, strict=True))
    assert sum(shares.values()) == pytest.approx(1, abs=0.02)
    assert shares["fast"] == pytest.approx(0.75, abs=0.1)


def test_groups_are_faster_than_their_slow_half_and_even_parts(
    model: to.Model, folder: Path, found: to.Frontier
) -> None:
    slow = model.frontier(
        2, device=f"{folder}/slow.toml", train=training(recompute="none"), search="expert"
    )
    even = [point for point in found if not stage_devices_of(point.found)]
    assert found.fastest.time_s < 0.5 * slow.fastest.time_s
    assert all(found.fastest.time_s < point.time_s for point in even)


def test_the_bound_of_a_step(model: to.Model, both: str) -> None:
    own = model.frontier(both, train=training(recompute="none"), search="expert", stages=4)
    epsilon = own._whole.result.time_epsilon
    assert epsilon is not None
    assert 0 <= epsilon < 0.5


def intervals(devices: StageDevices) -> list[float]:
    """Return the interval of every cut of a stream."""
    kinds, times, stages = devices.devices, devices.group_times, devices.stages
    found = []
    for cuts in all_cuts(times[0].order, stages):
        chunks = [times[g].step(cuts)[n] for n, g in enumerate(devices.groups)]
        sent = [devices.link(n, n + 1).send_s(own.sent_bytes) for n, own in enumerate(chunks[:-1])]
        run = [o.forward_s + d.step_overhead_s for o, d in zip(chunks, kinds, strict=True)]
        found.append(max(*run, *sent))
    return found


def test_no_cut_and_no_order_of_a_stream_is_better(folder: Path, both: str) -> None:
    gpt = Gpt(layers=1, width=32, heads=4, vocabulary=24, sequence=16, batch=2, dtype="float32")
    model = to.load(gpt.build("small").save(folder))
    frontier = model.frontier(both, objective="throughput", search="expert", stages=4)
    best = frontier.fastest.found
    epsilon = frontier._whole.result.time_epsilon
    assert epsilon is not None
    devices = best.pipeline.devices  # type: ignore[attr-defined]
    turned = StageDevices(devices.points[::-1], devices.counts[::-1], devices.between)
    every = [*intervals(devices), *intervals(turned)]
    assert min(intervals(devices)) <= best.time_s <= min(every) * 1.003
    assert min(every) >= best.time_s / (1 + epsilon)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=4, max_size=9),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_no_assignment_is_below_the_bound(
    rows: list[tuple[int, int]], first: int, second: int, chunks: int
) -> None:
    place_s = np.array(rows, float).T
    bound_s = least_shared_s([*place_s], [first, second], chunks)

    def slowest_s(groups: Sequence[int]) -> float:
        sums = [place_s[g, [n for n, own in enumerate(groups) if own == g]].sum() for g in (0, 1)]
        return max(sums[0] / first, sums[1] / second)

    every = itertools.product((0, 1), repeat=len(rows))
    ranges = (own for own in every if 1 + sum(map(int.__ne__, own, own[1:])) <= 2 * chunks)
    assert bound_s <= min(map(slowest_s, ranges)) * (1 + 1e-9)


def test_each_stage_has_the_memory_of_its_device(
    model: to.Model, folder: Path, found: to.Frontier
) -> None:
    """A small device rules out plans whose fullest stage is on a large one."""
    least = min(point.memory_bytes for point in found)
    tiny = described(folder, "tiny", 1.0, 0.8 * least)
    groups = f"{folder}/fast.toml:2,{tiny}:2"
    own = model.frontier(groups, train=training(), search="expert", stages=4)
    for point in staged(own):
        rows = zip(stage_devices_of(point), point.pipeline.stage_bytes, strict=True)  # type: ignore[attr-defined]
        assert point.is_above_capacity == any(n == "tiny" and s > 0.8 * least for n, s in rows)


def test_a_small_device_gets_what_it_holds(
    model: to.Model, folder: Path, found: to.Frontier
) -> None:
    """The cut of equal time is too large for it, so that it gets less."""
    asked = {"train": training(recompute="none"), "search": "expert", "stages": 4}
    even = model.frontier(f"{folder}/fast.toml:2,{folder}/slow.toml:2", schedule="1f1b", **asked)  # type: ignore[arg-type]
    pipeline = staged(even)[0].pipeline  # type: ignore[attr-defined]
    need = max(
        size
        for size, group in zip(pipeline.stage_bytes, pipeline.devices.groups, strict=True)
        if pipeline.devices.points[group].tables.device.name == "slow"
    )
    small = described(folder, "small", 1.0, 0.9 * need)
    own = model.frontier(f"{folder}/fast.toml:2,{small}:2", schedule="1f1b", **asked)  # type: ignore[arg-type]
    assert not own.fastest.is_above_capacity
    assert own.fastest.time_s < 1.5 * even.fastest.time_s


def test_the_plan_names_the_device_of_each_stage(found: to.Frontier, tmp_path: Path) -> None:
    point = next(p for p in found if stage_devices_of(p.found))
    point.compile(tmp_path / "plan")
    names = Plan.load(tmp_path / "plan").document["stages"]["devices"]
    assert names == stage_devices_of(point.found)
    assert re.search(r"run ranks? 0.* on (fast|slow), ranks? \d.* on (fast|slow)", point.notes[-1])
    assert all(name in str(point.explain()) for name in names)


def test_a_file_of_groups(folder: Path, model: to.Model) -> None:
    text = 'name = "lab"\n[groups]\n"fast.toml" = 1\n"slow.toml" = 1\n'
    text += "[link.between_groups]\nlatency_s = 1e-3\nbandwidth_bytes_per_s = 1e6\n"
    (folder / "lab.toml").write_text(text)
    own = load_device(str(folder / "lab.toml"))
    assert [group.count for group in own.groups] == [1, 1]
    assert own.network.latency_s == 1e-3
    asked = {"device": folder / "lab.toml", "objective": "throughput", "search": "expert"}
    frontier = model.frontier(stages=2, **asked)  # type: ignore[arg-type]
    assert frontier.devices == 2
    (between,) = {p.pipeline.devices.between for p in staged(frontier)}  # type: ignore[attr-defined]
    assert between == own.network


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"devices": "h100:3,a100:1", "stages": 2}, "stages: a stage has 2 like devices, which"),
        ({"devices": "h100:2,a100"}, "expected NAME:NUMBER in each part, got: 'a100'"),
        ({"devices": "h100:2,a100:2", "mesh": "2x4"}, "expected all of its 4 devices, got: mesh"),
        ({"devices": 3, "device": "h100:2,a100:2"}, "devices: expected no number with unlike"),
        ({"devices": "h100:2,a100:2", "device": "v100"}, "device: expected none with --devices"),
        ({"devices": "h100:2,a100:two"}, "expected NAME:NUMBER in each part, got: 'a100:two'"),
        ({"devices": "a100:x"}, "1 to 1024, got: 'a100:x' (or groups, such as a100:4,v100:4)"),
        ({"devices": "h100:800,a100:800"}, "devices: expected at most 1024, got"),
        ({"devices": "h100:1,a100:1,v100:1,l40s:1,h200:1"}, "expected at most 4 groups"),
    ],
)
def test_groups_that_do_not_fit(model: to.Model, asked: dict[str, object], text: str) -> None:
    with pytest.raises(UserError, match=re.escape(text)):
        model.frontier(**asked)  # type: ignore[arg-type]


def test_numbers_of_unlike_devices(model: to.Model) -> None:
    with pytest.raises(UserError, match="objective is about numbers of like devices"):
        model.profile("h100:2,a100:2")  # type: ignore[arg-type]
