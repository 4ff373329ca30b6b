"""Streams of inputs through stages: results of real ranks, and the ends of a job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import odd_models
import onnx
import onnxruntime
import pytest
from graphs.residual import Residual
from graphs.trained import TRAINED
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node, make_tensor_value_info

import tensoropt as to
from tensoropt.runtime.cli.plan import main as show
from tensoropt.runtime.cli.run import main
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.inspection.validation import validate
from tensoropt.runtime.plan.plan import Plan

MODELS = Path(__file__).parents[1] / "models"


def branches(folder: Path) -> Path:
    """Return a model with parallel branches, a value that skips stages, and two outputs."""
    rng, nodes, weights = np.random.default_rng(0), [], []

    def layer(before: str, name: str) -> str:
        array = (rng.standard_normal((32, 32)) / 6).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w.{name}"))
        nodes.append(make_node("MatMul", [before, f"w.{name}"], [f"{name}.product"], name))
        nodes.append(make_node("Tanh", [f"{name}.product"], [name], f"{name}.tanh"))
        return name

    left, right = layer("x", "left"), layer("x", "right")
    deep = layer(layer(left, "left1"), "left2")
    nodes.append(make_node("Add", [deep, layer(right, "right1")], ["sum"], "sum"))
    nodes.append(make_node("Add", [layer("sum", "last"), "left"], ["y"], "skip"))
    ends = [make_tensor_value_info(n, TensorProto.FLOAT, [8, 32]) for n in ("x", "y", "left")]
    graph = helper.make_graph(nodes, "branches", ends[:1], ends[1:], weights)
    imports = [helper.make_opsetid("", 20)]
    path = folder / "branches.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def residual(folder: Path) -> Path:
    return Residual(batch=4, image=16, blocks=1, width=8, pooled=True).build("cnn").save(folder)


SOURCES: dict[str, Callable[[Path], Path]] = {
    "branches": branches,
    "bert": lambda _: MODELS / "bert_tiny.onnx",
    "vit": lambda _: MODELS / "vit_tiny.onnx",
    "gpt2": lambda folder: TRAINED["gpt2"].build("gpt2").save(folder, seed=0),
    "residual": residual,
}


def compiled(model: Path, folder: Path, devices: int, stages: int, **asked: Any) -> Path:
    options = {"objective": "throughput", "search": "expert", "stages": stages, **asked}
    to.load(model).frontier(devices, **options).fastest.compile(folder / "plan")
    return folder / "plan"


def drawn(plan: Path, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        tensor.name: rng.integers(0, 16, tensor.shape).astype(tensor.dtype)
        if tensor.dtype.startswith("int")
        else rng.standard_normal(tensor.shape).astype(tensor.dtype)
        for tensor in Plan.load(plan).inputs
    }


@pytest.mark.parametrize(
    ("name", "devices", "stages"),
    [
        ("branches", 4, 4),
        *(
            pytest.param(name, devices, stages, marks=pytest.mark.slow)
            for name in SOURCES
            for devices, stages in ((2, 2), (4, 2), (4, 4))
            if (name, devices, stages) != ("branches", 4, 4)
        ),
    ],
)
def test_results_are_those_of_one_device(
    tmp_path: Path, name: str, devices: int, stages: int
) -> None:
    model = SOURCES[name](tmp_path)
    plan = compiled(model, tmp_path, devices, stages)
    assert validate(plan) == []
    found = check_plan(plan, model, threads=1, runs=3, provider="cpu")
    assert found.passed, found.outputs
    assert found.interval_s is not None
    assert found.predicted_interval_s is not None
    assert found.predicted_interval_s < (found.predicted_time_s or 0.0)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("devices", [2, 4])
def test_results_on_cuda_are_those_of_one_device(tmp_path: Path, devices: int) -> None:
    """On stand-ins for NCCL and CUDA, in two stages."""
    model = branches(tmp_path)
    plan = compiled(model, tmp_path, devices, 2)
    found = check_plan(plan, model, threads=1, runs=3, provider="cuda")
    assert found.passed, found.outputs
    assert found.interval_s is not None
    one = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = [drawn(plan, seed) for seed in range(5)]
    with to.Session(plan, threads=1, provider="cuda") as session:
        for given, made in zip(inputs, session.run_many(inputs), strict=True):
            wanted = one.run(["y", "left"], given)
            np.testing.assert_allclose(made["y"], wanted[0], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(made["left"], wanted[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_simulated_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = branches(tmp_path)
    plan = compiled(model, tmp_path, 2, 2)
    monkeypatch.setenv("TENSOROPT_LINK_BYTES_PER_S", "1e5")
    found = check_plan(plan, model, threads=1, runs=8, provider="cpu")
    sent = sum(4 * np.prod(own["shape"]) for own in Plan.load(plan).document["stages"]["passed"])
    assert found.passed
    assert max(found.step_times_s) > 0.9 * sent / 1e5


def test_a_stream_of_a_session(tmp_path: Path) -> None:
    model = branches(tmp_path)
    plan = compiled(model, tmp_path, 3, 3)
    whole = tmp_path / "whole"
    to.load(model).frontier(1, search="expert").fastest.compile(whole)
    inputs = [drawn(plan, seed) for seed in range(20)]
    with to.Session(whole, threads=1) as one:
        wanted = [one.run(own) for own in inputs]
    with to.Session(plan, threads=1) as session:
        alone = [session.run(own) for own in inputs[:3]]
        found = [*session.run_many(inputs)]
        named = [*session.run_many(inputs[:2], ["y"])]
        times_s = session.step_times_s(2)
    assert [*map(sorted, found)] == [["left", "y"]] * len(inputs)
    assert [*map(list, named)] == [["y"]] * 2
    assert len(times_s) == 2
    for one, other in zip([*alone, *found], [*wanted[:3], *wanted], strict=True):
        for name, array in one.items():
            np.testing.assert_allclose(array, other[name], rtol=1e-5, atol=1e-6)


def test_sizes_that_only_the_last_stage_knows(tmp_path: Path) -> None:
    """They follow from its values."""
    nodes = [
        make_node("MatMul", ["x", "w.0"], ["h"], "first"),
        make_node("NonZero", ["h"], ["places"], "places"),
        make_node("MatMul", ["h", "w.1"], ["g"], "last"),
        make_node("NonZero", ["g"], ["y"], "found"),
        make_node("Shape", ["places"], ["count"], "count"),
    ]
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.integers(-1, 2, (8, 8)).astype(np.float32), f"w.{n}")
        for n in range(2)
    ]
    ends = [
        make_tensor_value_info("x", TensorProto.FLOAT, [4, 8]),
        make_tensor_value_info("y", TensorProto.INT64, [2, None]),
        make_tensor_value_info("count", TensorProto.INT64, [2]),
    ]
    graph = helper.make_graph(nodes, "found", ends[:1], ends[1:], weights)
    imports = [helper.make_opsetid("", 20)]
    path = tmp_path / "found.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    given = {"x": rng.integers(-1, 2, (4, 8)).astype(np.float32)}
    wanted = onnxruntime.InferenceSession(path).run(["y", "count"], given)
    with to.Session(compiled(path, tmp_path, 2, 2), threads=1) as session:
        found = session.run(given)
    np.testing.assert_array_equal(found["y"], wanted[0])
    np.testing.assert_array_equal(found["count"], wanted[1])


def test_a_stream_that_is_left_early(tmp_path: Path) -> None:
    plan = compiled(branches(tmp_path), tmp_path, 2, 2)
    with to.Session(plan, threads=1) as session:
        stream = session.run_many(drawn(plan, seed) for seed in range(100))
        first = next(stream)
        stream.close()
        again = session.run(drawn(plan, 0))
        with pytest.raises(to.UserError, match="input 'x' is missing"):
            list(session.run_many([{}]))
    np.testing.assert_array_equal(first["y"], again["y"])


def test_a_rank_of_the_middle_stage_is_killed(tmp_path: Path) -> None:
    plan = compiled(branches(tmp_path), tmp_path, 3, 3)
    with to.Session(plan, threads=1) as session:
        stream = session.run_many(drawn(plan, 0) for _ in range(1_000_000))
        next(stream)
        os.kill(session.pids[1], signal.SIGKILL)
        with pytest.raises(to.RankFailedError, match="rank 1 of 3 was killed by signal 9"):
            list(stream)


def test_refused_modes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = branches(tmp_path)
    plan = compiled(model, tmp_path, 2, 2)
    assert main([str(plan), "--debug", "--check", str(model)]) == 1
    said = capsys.readouterr().err
    assert "is in stages, expected a plan made with --stages 1" in said
    assert said.count("\n") == 1


def test_refused_values(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(odd_models.MODELS["strings"](), path)
    with pytest.raises(to.UserError, match=r"^stages: stages take no strings, expected stages 1"):
        compiled(path, tmp_path, 2, 2)


def test_sizes_that_only_a_run_has(tmp_path: Path) -> None:
    """One plan, inputs of two sizes; the values between the stages have these sizes too."""
    model = MODELS / "llama_tiny_dynamic.onnx"
    plan = compiled(model, tmp_path, 2, 2)
    assert validate(plan) == []
    names = [name for t in Plan.load(plan).inputs for name in t.shape if isinstance(name, str)]
    for size in (1, 5):
        found = check_plan(plan, model, threads=1, dims=dict.fromkeys(names, size))
        assert found.passed, found.outputs


def test_the_plan_shows_both_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = compiled(branches(tmp_path), tmp_path, 2, 2)
    assert show(["show", str(plan)]) == 0
    said = capsys.readouterr().out
    assert "2 stages, each on mesh 1" in said
    assert "predicted: latency " in said
    assert ", a result every " in said


def test_an_edited_plan(tmp_path: Path) -> None:
    plan = compiled(branches(tmp_path), tmp_path, 2, 2)
    path = plan / "plan.json"
    path.write_text(path.read_text().replace('"F0.1"', '"F0.1 F0.1"'))
    texts = [str(problem) for problem in validate(plan)]
    assert any(
        "schedule: stage 1, task 1: expected each task of its chunks once" in t for t in texts
    )
