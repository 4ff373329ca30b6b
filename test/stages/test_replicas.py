"""Replicas on unlike devices: their parts, their points next to others, bounds and refusals."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from graphs.gpt import Gpt
from graphs.trained import LOSS, TRAINED
from hypothesis import given
from hypothesis import strategies as st
from unlike_devices import described

import tensoropt as to
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.planning.replicas import ReplicasBound, least_sums_s, shares
from tensoropt.compiler.search.frontier.points import overfull_of, stages_of
from tensoropt.compiler.search.frontier.search import FrontierResult
from tensoropt.runtime.support.errors import UserError


@pytest.fixture(scope="module")
def model(folder: Path) -> to.Model:
    gpt = Gpt(layers=1, width=64, heads=4, vocabulary=96, sequence=64, batch=2, dtype="float32")
    return to.load(gpt.build("gpt").save(folder))


def training(micro_batches: int | str = 8, **more: object) -> to.Training:
    return to.Training(LOSS, micro_batches=micro_batches, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(model: to.Model, both: str) -> to.Frontier:
    return model.frontier(both, train=training(recompute="none"), stages=1, epsilon=1.0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 6))
def test_no_other_parts_end_earlier(run_s: list[int], more: int) -> None:
    batches = len(run_s) + more
    parts = shares(run_s, batches)
    assert sum(parts) == batches
    assert min(parts) >= 1
    every = itertools.product(range(1, batches + 1), repeat=len(run_s))
    ends = (
        max(n * s for n, s in zip(own, run_s, strict=True)) for own in every if sum(own) == batches
    )
    assert max(n * s for n, s in zip(parts, run_s, strict=True)) == min(ends)


def test_faster_devices_take_more_samples(found: to.Frontier) -> None:
    point = found.fastest
    rows = [(row.device, row.micro_batches, row.samples) for row in point.replicas]
    assert rows == [("fast", 6, 12), ("slow", 2, 4)]
    assert point.time_s >= max(row.busy_s for row in point.replicas)
    note = "note: of 8 micro-batches run, ranks 0 to 1 on fast: 6 (12 samples), "
    assert point.notes[-1] == note + "ranks 2 to 3 on slow: 2 (4 samples)"
    text = str(point.explain())
    assert re.search(r"replicas of mesh 2, which take parts of 8 micro-batches\n", text)
    assert re.search(r"0 +fast +6 +12 ", text)


def test_parts_beat_equal_parts_and_the_fast_half(
    model: to.Model, folder: Path, found: to.Frontier
) -> None:
    train = training(recompute="none")
    alone = model.frontier(2, device=f"{folder}/fast.toml", train=train, epsilon=1.0)
    even = [point for point in found if not point.replicas]
    assert found.fastest.replicas
    assert found.fastest.time_s < alone.fastest.time_s
    assert all(found.fastest.time_s < point.time_s for point in even)


def test_the_bound_holds_for_every_point(model: to.Model, both: str, found: to.Frontier) -> None:
    """Nearer searches find nothing below the bound of a coarse one."""
    epsilon = found._whole.result.time_epsilon
    assert epsilon is not None
    least_s = found.fastest.time_s / (1 + epsilon)
    nearer = model.frontier(both, train=training(recompute="none"), stages=1, epsilon=0.02)
    assert least_s <= nearer.fastest.time_s
    closer = nearer._whole.result.time_epsilon
    assert closer is not None
    assert closer < 0.1


def test_no_layout_adds_up_gradients_in_less_time(found: to.Frontier, both: str) -> None:
    points = [point.found for point in found if point.replicas]
    assert points
    for point in points:
        graph, between = point.tables.graph, load_device(both).between_groups
        assert 0 < least_sums_s(graph, 2, 2, between) <= point.sums_s  # type: ignore[attr-defined]


def test_stages_and_replicas_are_searched_together(model: to.Model, both: str) -> None:
    frontier = model.frontier(
        both, train=training(recompute="none"), stages="auto", search="expert"
    )  # type: ignore[arg-type]
    kinds = {(stages_of(point.found) > 1, bool(point.replicas)) for point in frontier}
    assert (True, True) not in kinds
    assert len(kinds) >= 2


def test_groups_of_different_sizes(model: to.Model, folder: Path) -> None:
    groups = f"{folder}/fast.toml:1,{folder}/slow.toml:2"
    frontier = model.frontier(groups, train=training(recompute="none"), stages=1, epsilon=1.0)
    point = next(own for own in frontier if own.replicas)
    assert [row.device for row in point.replicas] == ["fast", "slow", "slow"]
    assert sum(row.micro_batches for row in point.replicas) == 8
    assert point.mesh == (1,)


def test_each_replica_has_the_memory_of_its_device(
    model: to.Model, folder: Path, found: to.Frontier
) -> None:
    need = min(point.process_bytes for point in found if point.replicas)
    asked = {"train": training(recompute="none"), "stages": 1, "epsilon": 1.0}

    def on_replicas(name: str, capacity_bytes: float) -> list[to.Point]:
        groups = f"{folder}/fast.toml:2,{described(folder, name, 1.0, capacity_bytes)}:2"
        return [point for point in model.frontier(groups, **asked) if point.replicas]  # type: ignore[arg-type]

    assert not on_replicas("small", 0.9 * need)
    above = [overfull_of(point.found) for point in on_replicas("tiny", 0.05 * need)]
    assert above
    assert {over.device for over in above if over is not None} == {"tiny"}
    assert None not in above


def test_running_statistics_stay_on_one_mesh(folder: Path) -> None:
    model = to.load(TRAINED["cnn"].build("cnn").save(folder))
    groups = f"{folder}/fast.toml:1,{folder}/slow.toml:1"
    frontier = model.frontier(groups, train=training(4), stages=1, search="expert")
    assert not any(point.replicas for point in frontier)


def test_the_bound_of_two_searches() -> None:
    """Of 4 micro-batches in 4 s or 8 s, with 3 and 1 the slowest takes 3 s."""
    point = SimpleNamespace(time_s=4.4), SimpleNamespace(time_s=8.8)
    results = [FrontierResult([own], None, 0.1) for own in point]  # type: ignore[list-item]
    assert ReplicasBound(results, [1, 1], 4, 4).best_s() == pytest.approx(3)
    assert ReplicasBound(results, [1, 1], 4, 4, sums_s=0.5).best_s() == pytest.approx(3.5)
    unknown = FrontierResult(results[0].points, None, None)
    assert ReplicasBound([unknown, unknown], [1, 1], 4, 4).best_s() == 0


def test_a_plan_on_replicas_has_no_annotations(model: to.Model, both: str, tmp_path: Path) -> None:
    point = model.frontier(both, batches=4, search="expert").fastest
    assert [row.micro_batches for row in point.replicas] == [3, 1]
    with pytest.raises(UserError, match="on one mesh, expected a plan without replicas"):
        point.annotate(tmp_path / "annotated.onnx")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"device": "a100", "batches": 4}, "batches divides a run among unlike devices, expected"),
        ({"batches": 1}, "batches: expected a whole number from 2"),
        ({"batches": 4, "stages": 2}, "plans replicas for inference, expected no stages"),
        ({"batches": 4, "train": training()}, "batches is of inference, expected micro-batches in"),
    ],
)
def test_batches_that_no_replicas_take(
    model: to.Model, both: str, asked: dict[str, object], text: str
) -> None:
    groups = {} if "device" in asked else {"devices": both}
    with pytest.raises(UserError, match=re.escape(text)):
        model.frontier(**groups, **asked)  # type: ignore[arg-type]
