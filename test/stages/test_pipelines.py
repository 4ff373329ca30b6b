"""Pipelines of searched steps: their time and memory, and the frontier that has them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import onnx
import pytest
from graphs.gpt import Gpt

import tensoropt as to
from tensoropt.compiler.planning.request import AUTO, Request
from tensoropt.compiler.program.graph import Node, Op
from tensoropt.compiler.search.frontier.points import stages_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.bounds import least_sent_s
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import FAMILIES
from tensoropt.compiler.stages.order import order_of
from tensoropt.compiler.stages.pipeline import pipelines_of
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.stages.execution import check_schedule

BATCHES = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> to.Model:
    gpt = Gpt(layers=6, width=64, heads=4, vocabulary=96, sequence=16, batch=2, dtype="float32")
    return to.load(gpt.build("gpt").save(tmp_path_factory.mktemp("gpt")))


def training(**more: object) -> to.Training:
    return to.Training("softmax-cross-entropy:scores,labels", micro_batches=BATCHES, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def point(model: to.Model) -> FrontierPoint:
    train = training(recompute="blocks")
    return model.frontier(2, device="h100", train=train, search="expert").fastest.found


def test_one_stage_takes_the_time_and_the_memory_of_the_step(point: FrontierPoint) -> None:
    (own,) = pipelines_of(StageDevices.of_one_kind(point, 1), ["1f1b"])
    assert own.time_s + _launches_s(point) == pytest.approx(point.time_s, rel=1e-9)
    assert own.memory_bytes == point.memory_bytes
    assert own.static_bytes == point.static_bytes


def _launches_s(point: FrontierPoint) -> float:
    """Return the time of starting graphs, which belongs to no operation."""
    return point.tables.device.step_overhead_s * (BATCHES + 1)


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_divide_the_work_and_the_memory(point: FrontierPoint, stages: int) -> None:
    for own in pipelines_of(StageDevices.of_one_kind(point, stages), [*FAMILIES]):
        check_schedule(own.schedule, trains=True)
        assert own.time_s > (point.time_s - _launches_s(point)) / stages
        assert own.time_s < point.time_s
        assert own.static_bytes < 1.6 * point.static_bytes / stages
        forward = [number for number in own.numbers if number is not None]
        assert set(forward) == set(range(stages * FAMILIES[own.family].chunks))


@pytest.mark.parametrize("stages", [2, 3])
def test_no_chunk_is_sent_faster_than_the_bound(point: FrontierPoint, stages: int) -> None:
    graph, device = point.tables.graph, point.tables.device
    least_s = least_sent_s(graph, [Mesh(point.mesh)], device, stages)
    # The hidden states of a micro-batch, on two ranks.
    assert least_s >= device.axis_links(Mesh((stages, *point.mesh)))[0].send_s(2 * 16 * 64 * 4 / 2)
    for own in pipelines_of(StageDevices.of_one_kind(point, stages), [*FAMILIES]):
        places = own.orders.places
        moves = [n for n, (a, b) in enumerate(pairwise(places)) if a != b]
        assert min(own.costs[n].sent_s for n in moves) >= least_s


def test_micro_batches_in_flight_take_memory(point: FrontierPoint) -> None:
    devices = StageDevices.of_one_kind(point, 2)
    first, late = (pipelines_of(devices, [name])[0] for name in ("gpipe", "1f1b"))
    assert first.memory_bytes > late.memory_bytes
    assert first.execution.kept_bytes[0] == 2 * late.execution.kept_bytes[0]


def test_pipelines_are_points_of_the_frontier(model: to.Model) -> None:
    found = model.frontier(4, device="h100", train=training(), stages="auto", search="expert")
    times = [point.time_s for point in found]
    sizes = [point.process_bytes for point in found]
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)
    alone = model.frontier(4, device="h100", train=training(), search="expert")
    assert all(
        any(own.time_s <= p.time_s and own.process_bytes <= p.process_bytes for own in found)
        for p in alone
    )
    stages = {getattr(point.found, "stages", 1) for point in found}
    assert max(stages) > 1


def test_a_limit_is_about_the_fullest_stage(model: to.Model) -> None:
    asked = {"device": "h100", "train": training(), "stages": 2, "search": "expert"}
    found = model.frontier(4, **asked)  # type: ignore[arg-type]
    least = min(point.process_bytes for point in found)
    lean = model.frontier(4, memory=least, **asked)  # type: ignore[arg-type]
    assert [point.process_bytes for point in lean] == [least]
    with pytest.raises(to.UserError, match="nothing fits 1 B on 4 devices"):
        model.frontier(4, memory="1B", **asked)  # type: ignore[arg-type]


def test_a_mesh_is_that_of_each_stage(model: to.Model) -> None:
    asked = {"device": "h100", "train": training(), "stages": 2, "search": "expert"}
    found = model.frontier(8, mesh=(2, 2), **asked)  # type: ignore[arg-type]
    assert {(point.mesh, stages_of(point.found)) for point in found} == {((2, 2), 2)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stages": 3}, "stages: expected a divisor of devices 4, got: 3"),
        ({"stages": 0.5}, "stages: expected a whole number"),
        (
            {"stages": 2, "mesh": "4"},
            "mesh: 4 on 2 stages has 8 ranks, expected 4 as in 2, got: '4'",
        ),
        ({"stages": 2, "schedule": "1f2b"}, "schedule: unknown schedule '1f2b'"),
        ({"schedule": "1f1b"}, "schedule is of a pipeline, expected stages of 2 or more"),
        ({"stages": 1, "schedule": "1f1b"}, "schedule is of a pipeline, expected stages of 2"),
        (
            {"stages": 32, "schedule": "zb-v", "devices": 64},
            "stages: expected at most 31 stages of 2 chunks, as zb-v has, for 62 first reads",
        ),
        (
            {"stages": 64, "devices": 64},
            "expected at most 62 stages for 62 first reads of a parameter, got: 64",
        ),
    ],
)
def test_what_is_refused(model: to.Model, options: dict[str, object], message: str) -> None:
    with pytest.raises(to.UserError, match=message):
        model.frontier(**{"devices": 4, "train": training(), **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(("stages", "recompute"), [(2, "none"), (4, "blocks")])
def test_costs_and_programs_have_the_same_gradients_of_weights(
    model: to.Model, tmp_path: Path, stages: int, recompute: str
) -> None:
    train = training(recompute=recompute)
    asked = {"stages": stages, "schedule": "zb-h1", "search": "expert"}
    chosen = model.frontier(4, device="h100", train=train, **asked).fastest  # type: ignore[arg-type]
    chosen.compile(tmp_path / "plan")
    pipeline = chosen.found.pipeline  # type: ignore[attr-defined]
    graph = pipeline.point.tables.graph
    order = order_of(graph)
    homes = order.home_chunks(pipeline.cuts).tolist()
    backward = {node.name: homes[i] for i, node in enumerate(graph.nodes) if is_backward(node)}
    weights = {graph.nodes[i].name for i in order.weight_nodes(pipeline.cuts)}
    found = {}
    for file in (tmp_path / "plan").glob("rank*.*[0-9].onnx"):
        kind, chunk = file.stem.split(".")[1][:-1], int(file.stem[-1])
        for node in onnx.load(file, load_external_data=False).graph.node:
            if node.name in backward and kind in ("backward", "weights"):
                found[node.name] = kind, chunk
    assert len(found) > 0.8 * len(backward)
    assert found == {
        name: ("weights" if name in weights else "backward", backward[name]) for name in found
    }


def is_backward(node: Node) -> bool:
    return isinstance(node, Op) and not node.constant and node.phase in ("backward", "recompute")


@pytest.mark.parametrize(
    ("asked", "stages"),
    [
        ({"devices": 16, "accumulates": True}, AUTO),
        ({"devices": 16}, 1),
        ({"devices": 8, "accumulates": True}, 1),
        ({"devices": 16, "accumulates": True, "stages": 2}, 2),
        ({"mesh": "4x4", "accumulates": True}, 1),
        ({"devices": 16, "accumulates": True, "search": "pase"}, 1),
    ],
)
def test_micro_batches_on_several_nodes_are_pipelined(asked: dict, stages: int) -> None:
    assert Request(device="h100", **asked).stages == stages


@pytest.mark.parametrize("recompute", ["none", "blocks"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "v-half"])
def test_the_memory_of_the_fullest_stage_is_that_of_its_graphs(
    model: to.Model, tmp_path: Path, schedule: str, recompute: str
) -> None:
    asked = {"train": training(recompute=recompute), "stages": 2, "schedule": schedule}
    found = model.frontier(4, device="h100", search="expert", **asked)  # type: ignore[arg-type]
    point = next(own for own in found if stages_of(own.found) > 1)
    compiled_bytes = point.compile(tmp_path / "plan").predicted.process_bytes
    assert 0.95 < point.process_bytes / compiled_bytes < 1.15


def test_a_schedule_fills_the_memory_that_stages_have(model: to.Model) -> None:
    train = to.Training("softmax-cross-entropy:scores,labels", micro_batches=16)
    asked = {"device": "h100", "train": train, "search": "expert", "schedule": "zb-v2"}
    free = model.frontier(4, stages=4, **asked).fastest  # type: ignore[arg-type]
    limit = int(0.8 * free.process_bytes)
    full = model.frontier(4, stages=4, memory=limit, **asked).fastest  # type: ignore[arg-type]
    assert 0.85 * limit < full.process_bytes <= limit
    assert full.time_s > free.time_s
    check_schedule(full.found.pipeline.schedule, trains=True)  # type: ignore[attr-defined]
