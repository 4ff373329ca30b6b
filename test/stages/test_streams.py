"""Streams of inputs through stages, in inference: times, memory, bounds, and the frontier."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from all_cuts import all_cuts
from graphs.gpt import Gpt
from graphs.small import SMALL
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node, make_tensor_value_info

import tensoropt as to
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.devices import StageDevices, stage_link
from tensoropt.compiler.stages.stream import stream_of
from tensoropt.runtime.stages.execution import check_schedule, execute
from tensoropt.runtime.stages.schedule import Schedule

DEVICES = 4
LINK = """
name = "slow"
launch_overhead_s = 1e-6
step_overhead_s = 2e-6
devices_per_node = 4
[peak_flop_per_s]
float32 = 1e9
[efficiency]
contraction = 1.0
[memory]
bandwidth_bytes_per_s = 1e10
capacity_bytes = 8e9
[link.intra_node]
latency_s = 1e-6
bandwidth_bytes_per_s = {bandwidth}
[link.network]
latency_s = 1e-6
bandwidth_bytes_per_s = {bandwidth}
"""


def device(folder: Path, bandwidth: float) -> str:
    path = folder / "slow.toml"
    path.write_text(LINK.format(bandwidth=bandwidth))
    return str(path)


def drawn_model(folder: Path, seed: int) -> to.Model:
    """Return a perceptron with random widths, and branches that a sum joins."""
    rng = np.random.default_rng(seed)
    widths = [int(8 * rng.integers(1, 9)) for _ in range(int(rng.integers(4, 6)))]
    nodes, weights, last = [], [], "x"

    def layer(before: str, name: str, size: int, to_size: int) -> str:
        array = rng.standard_normal((size, to_size)).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w.{name}"))
        nodes.append(make_node("MatMul", [before, f"w.{name}"], [name], name))
        return name

    for number, (size, to_size) in enumerate(itertools.pairwise(widths)):
        left = layer(last, f"left{number}", size, to_size)
        last = left
        if rng.random() < 0.3:
            right = layer(f"relu{number - 1}" if number else "x", f"right{number}", size, to_size)
            nodes.append(make_node("Add", [left, right], [f"sum{number}"], f"sum{number}"))
            last = f"sum{number}"
        nodes.append(make_node("Relu", [last], [f"relu{number}"], f"relu{number}"))
        last = f"relu{number}"
    ends = [
        make_tensor_value_info(name, TensorProto.FLOAT, [16, size])
        for name, size in (("x", widths[0]), (last, widths[-1]))
    ]
    graph = helper.make_graph(nodes, "drawn", ends[:1], ends[1:], weights)
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / "m.onnx")
    return to.load(folder / "m.onnx")


def intervals(point: FrontierPoint, stages: int) -> dict[tuple[int, ...], float]:
    """Return the interval of every cut of a point."""
    times, found = NodeTimes(point), {}
    link, overhead_s = stage_link(point.tables.device, stages, point.mesh), 2e-6
    for cuts in all_cuts(times.order, stages):
        chunks = times.step(cuts)
        sent = [link.latency_s + own.sent_bytes / link.bandwidth_bytes_per_s for own in chunks[:-1]]
        found[cuts] = max([*sent, *(own.forward_s + overhead_s for own in chunks)])
    return found


@pytest.mark.parametrize(
    ("seed", "bandwidth"),
    [
        (2, 1e7),
        *(
            pytest.param(seed, bandwidth, marks=pytest.mark.slow)
            for seed, bandwidth in itertools.product((0, 1, 3, 4, 5), (1e7, 1e10))
        ),
    ],
)
def test_no_cut_no_number_of_stages_and_no_strategies_are_better(
    tmp_path: Path, seed: int, bandwidth: float
) -> None:
    model, slow = drawn_model(tmp_path, seed), device(tmp_path, bandwidth)
    asked = {"device": slow, "objective": "throughput"}
    best = model.frontier(DEVICES, epsilon=0.0, **asked)  # type: ignore[arg-type]
    epsilon = best._whole.result.time_epsilon
    assert epsilon is not None
    least_s = best.fastest.time_s / (1 + epsilon)
    for stages in (1, 2, 4):
        for search in ("ft", "random"):
            every = model.frontier(DEVICES, stages=stages, search=search, **asked)  # type: ignore[arg-type]
            for own in every:
                point = own.found
                assert own.time_s >= least_s * (1 - 1e-9)
                if stages > 1:
                    cuts = intervals(point.pipeline.point, stages)  # type: ignore[attr-defined]
                    assert min(cuts.values()) >= least_s * (1 - 1e-9)
                    assert point.interval_s <= min(cuts.values()) * 1.003  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> to.Model:
    gpt = Gpt(layers=6, width=64, heads=4, vocabulary=96, sequence=16, batch=2, dtype="float32")
    return to.load(gpt.build("gpt").save(tmp_path_factory.mktemp("gpt")))


@pytest.fixture(scope="module")
def found(model: to.Model) -> to.Frontier:
    return model.frontier(4, device="h100", objective="throughput", search="expert")


def test_stages_are_points_next_to_plans_without(model: to.Model, found: to.Frontier) -> None:
    alone = model.frontier(4, device="h100", search="expert")
    assert all(
        any(own.time_s <= p.time_s and own.process_bytes <= p.process_bytes for own in found)
        for p in alone
    )
    times = [point.time_s for point in found]
    assert times == sorted(times)
    best = found.fastest.found
    assert best.stages > 1  # type: ignore[attr-defined]
    assert best.time_s == best.interval_s < best.latency_s  # type: ignore[attr-defined]


def test_a_stream_has_a_result_in_the_time_of_the_slowest_stage(found: to.Frontier) -> None:
    pipeline = found.fastest.found.pipeline  # type: ignore[attr-defined]
    check_schedule(pipeline.schedule, trains=False)
    many = execute(Schedule.of_stream(pipeline.stages, 50), pipeline.costs).ends_s[-1]
    assert many[0] == pytest.approx(pipeline.time_s)
    slowest_s = max(own.forward_s for own in pipeline.costs)
    assert many[-1] - many[-2] == pytest.approx(slowest_s)
    assert pipeline.interval_s == max(slowest_s, *(own.sent_s for own in pipeline.costs))
    sums = sum(own.forward_s + own.sent_s for own in pipeline.costs)
    assert pipeline.time_s == pytest.approx(sums)


def test_latency_of_stages_is_the_sum(model: to.Model) -> None:
    asked = {"device": "h100", "search": "expert", "stages": 2}
    point = model.frontier(4, **asked).fastest.found  # type: ignore[arg-type]
    assert point.time_s == point.latency_s > point.interval_s  # type: ignore[attr-defined]


def test_the_memory_of_stages(model: to.Model) -> None:
    point = model.frontier(1, device="h100", search="expert").fastest.found
    whole, own = (stream_of(StageDevices.of_one_kind(point, n)) for n in (1, 3))
    assert whole.memory_bytes == point.memory_bytes
    assert whole.time_s == pytest.approx(point.time_s)
    assert sum(own.static_bytes_of) == pytest.approx(point.static_bytes, rel=0.2)
    assert own.memory_bytes < 0.6 * point.memory_bytes
    assert own.stage_bytes[0] >= own.static_bytes_of[0] + own.sent_bytes[0]


def test_reports_have_both_figures(found: to.Frontier, tmp_path: Path) -> None:
    text = str(found)
    assert "latency" in text.splitlines()[1]
    assert "interval" in text.splitlines()[1]
    lines = found.fastest.explain().text().splitlines()
    line = next(own for own in lines if own.startswith("pipeline: "))
    assert "stream, latency " in line
    assert "a result every " in line
    assert "runs/s" in line
    assert any(own.endswith("F forward, . no task; sends are for each input") for own in lines)
    found.report(tmp_path / "a.html")
    assert "a result every" in (tmp_path / "a.html").read_text()
    found.plot(tmp_path / "a.svg", found.fastest)
    assert "a result every" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"stages": 3}, "stages: expected a divisor of devices 4, got: 3"),
        ({"stages": 2, "schedule": "1f1b"}, "schedule is of a training step, expected train"),
        (
            {"devices": 128, "stages": 128, "search": "expert"},
            "stages: expected at most [0-9]+ stages for [0-9]+ first reads of a parameter",
        ),
        (
            {"train": to.Training("softmax-cross-entropy:scores,labels")},
            "objective throughput is of inference, expected no train",
        ),
    ],
)
def test_refusals(model: to.Model, asked: dict[str, object], message: str) -> None:
    with pytest.raises(to.UserError, match=message):
        model.frontier(**{"devices": 4, "objective": "throughput", **asked})  # type: ignore[arg-type]


def test_exports_for_other_tools(found: to.Frontier, tmp_path: Path) -> None:
    message = "is about a model on one mesh, expected --stages 1"
    for export in (found.fastest.netron, found.fastest.annotate):
        with pytest.raises(to.UserError, match=message):
            export(tmp_path / "a.onnx")
    with pytest.raises(to.UserError, match=message):
        found.fastest.dtensor()


def test_caches(tmp_path: Path) -> None:
    model = to.load(SMALL["decoder_small"].build("decoder").save(tmp_path))
    message = "each step of a decoder in stages waits for the step before, expected stages 1, or"
    with pytest.raises(to.UserError, match=message):
        model.frontier(2, objective="throughput")


def test_a_value_of_no_known_rank_stays_on_its_stage(tmp_path: Path) -> None:
    """The branches of an If have results of two ranks. The most even cut is among its readers."""
    branches = {
        f"{name}_branch": onnx.parser.parse_graph(
            f"{name} () => (float{shape} y) {{ y = {op} (first) }}"
        )
        for name, shape, op in (
            ("then", "[1, 4]", "ReduceMax <axes = [0], keepdims = 1>"),
            ("else", "[4]", "ReduceMax <axes = [0], keepdims = 0>"),
        )
    }
    nodes = [
        make_node("MatMul", ["x", "w1"], ["first"], "first"),
        make_node("ReduceMax", ["first"], ["most"], "most", keepdims=0),
        make_node("Greater", ["most", "zero"], ["is_positive"], "is_positive"),
        make_node("If", ["is_positive"], ["small"], "small", **branches),
        make_node("Neg", ["small"], ["negative"], "negative"),
        make_node("Abs", ["negative"], ["positive"], "positive"),
        make_node("Sqrt", ["positive"], ["root"], "root"),
        make_node("Reshape", ["root", "row"], ["again"], "again"),
        make_node("MatMul", ["again", "w2"], ["last"], "last"),
    ]
    rng = np.random.default_rng(0)
    arrays = {
        "w1": rng.standard_normal((8, 4)).astype(np.float32),
        "w2": rng.standard_normal((4, 8)).astype(np.float32),
        "zero": np.float32(0),
        "row": np.array([1, 4]),
    }
    graph = helper.make_graph(
        nodes,
        "unranked",
        [make_tensor_value_info("x", TensorProto.FLOAT, [16, 8])],
        [make_tensor_value_info("last", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(np.asarray(own), name) for name, own in arrays.items()],
    )
    path = tmp_path / "unranked.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    to.load(path).frontier(2, stages=2).fastest.compile(tmp_path / "plan")
    x = rng.standard_normal((16, 8)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    with to.Session(tmp_path / "plan") as session:
        assert session.run({"x": x})["last"] == pytest.approx(wanted, abs=1e-5)
