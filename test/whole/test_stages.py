"""Training steps cut into stages: every schedule computes the step of one device."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs.towers import Towers
from graphs.trained import LOSS, TRAINED
from launched import BURNT_S, LIMIT_S, processor_s, rank_processes
from onnx import TensorProto, helper, numpy_helper
from stand_ins import calls
from train_runs import difference, run_plan
from training_data import batch_size, draw

import tensoropt as to
from tensoropt.compiler.stages.names import SCHEDULES
from tensoropt.compiler.stages.pipeline import pipeline_of
from tensoropt.runtime.cli.run import main
from tensoropt.runtime.inspection.validation import validate
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.stages.schedule import chain
from tensoropt.runtime.support.errors import UserError

STEPS, RATE, TOLERANCE, MICRO_BATCHES = 8, 0.005, 1e-4, 4
FAMILIES = ("gpipe", "1f1b", "interleaved", "zb-h1")
WIDTHS = (32, *[48] * 7, 10)
DEFAULT = 4  # cudaMemcpyDefault: the copies of the runtime in Python; those of collectives are not


def perceptron(folder: Path) -> Path:
    rng, nodes, weights, x = np.random.default_rng(0), [], [], "x"
    for i, (m, n) in enumerate(pairwise(WIDTHS)):
        array = (rng.standard_normal((m, n)) / np.sqrt(m)).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{i}"))
        y = "scores" if i == len(WIDTHS) - 2 else f"y{i}"
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [y], f"layers.{i}/product"))
        if y != "scores":
            x = f"r{i}"
            nodes.append(helper.make_node("Relu", [y], [x], f"layers.{i}/relu"))
    ends = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, size])]
        for name, size in (("x", WIDTHS[0]), ("scores", WIDTHS[-1]))
    )
    graph = helper.make_graph(nodes, "mlp", *ends, weights)
    path = folder / "mlp.onnx"
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def perceptron_data() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, WIDTHS[0])).astype(np.float32)
    return {"x": x, "labels": rng.integers(0, WIDTHS[-1], 64)}


@dataclass
class Case:
    """A model, its samples, and its losses on one device by the settings of the step."""

    folder: Path
    path: Path
    data: Path
    losses: dict[tuple[Any, ...], list[float]]

    def plan(self, name: str, devices: int | str, stages: int, **asked: Any) -> Path:
        step = {key: asked.pop(key) for key in ("clip_norm", "precision") if key in asked}
        recompute = asked.pop("recompute", "none")
        train = to.Training(LOSS, "adamw", micro_batches=MICRO_BATCHES, recompute=recompute, **step)
        pick = asked.pop("pick", "fastest")
        if stages > 1:
            asked["stages"] = stages
        frontier = to.load(self.path).frontier(devices, train=train, epsilon=1.0, **asked)
        frontier.pick(pick).compile(self.folder / name)
        return self.folder / name

    def run(self, plan: Path, steps: int = STEPS, **options: Any) -> list[float]:
        return run_plan(plan, self.data, steps, RATE, threads=1, **options).losses

    def wanted(self, steps: int = STEPS, **step: Any) -> list[float]:
        key = (steps, *sorted(step.items()))
        if key not in self.losses:
            self.losses[key] = self.run(self.plan(f"one{len(self.losses)}", 1, 1, **step), steps)
        return self.losses[key]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    known: dict[str, Case] = {}

    def make(name: str) -> Case:
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            path = (
                perceptron(folder)
                if name == "mlp"
                else TRAINED[name].build(name).save(folder, seed=0)
            )
            arrays = perceptron_data() if name == "mlp" else draw(path, 4 * batch_size(path))
            np.savez(folder / "data.npz", **arrays)
            known[name] = Case(folder, path, folder / "data.npz", {})
        return known[name]

    return make


def check(
    case: Case, devices: int | str, stages: int, schedule: str, provider: str = "cpu", **asked: Any
) -> None:
    name = f"{schedule}-{devices}-{stages}-{len(list(case.folder.iterdir()))}"
    plan = case.plan(name, devices, stages, schedule=schedule, **asked)
    assert validate(plan) == []
    step = {k: v for k, v in asked.items() if k in ("clip_norm", "precision")}
    run = run_plan(plan, case.data, STEPS, RATE, threads=1, provider=provider)
    assert difference(run.losses, case.wanted(**step)) < TOLERANCE
    held = sum(run.result.held_bytes.values())
    assert sum(run.result.predicted_bytes.values()) == pytest.approx(held, rel=0.1)


@pytest.mark.parametrize(
    ("name", "devices", "stages", "schedule"),
    [
        ("mlp", 2, 2, "gpipe"),
        ("mlp", 4, 4, "zb-v"),
        ("mlp", 2, 2, "zb-v2"),
        ("cnn", 2, 2, "1f1b"),
        ("cnn", 4, 2, "interleaved"),
        ("gpt2", 2, 2, "zb-h1"),
        ("gpt2", 4, 4, "1f1b"),
    ],
)
def test_every_loss_is_that_of_one_device(
    case: Callable[[str], Case], name: str, devices: int, stages: int, schedule: str
) -> None:
    check(case(name), devices, stages, schedule)


@pytest.mark.parametrize(("devices", "stages"), [("h100:1,v100:2", 3), ("v100:2,h100:2", 2)])
def test_unlike_devices(case: Callable[[str], Case], devices: str, stages: int) -> None:
    check(case("mlp"), devices, stages, "1f1b")


TOWERS = {"width": 32, "heads": 4, "sequence": 8, "classes": 16, "batch": 8, "dtype": "float32"}


@pytest.mark.parametrize(
    ("devices", "stages", "schedule", "layers"),
    [
        (2, 2, "1f1b", {"layers": (2, 2)}),
        (2, 2, "zb-v", {"layers": (4, 4)}),
        (4, 4, "zb-h1", {"layers": (3, 2), "trunk": 2, "end": 2}),
        (4, 2, "gpipe", {"layers": (3, 3)}),
    ],
)
def test_branches_side_by_side(
    tmp_path: Path, devices: int, stages: int, schedule: str, layers: dict[str, Any]
) -> None:
    path = Towers(**TOWERS, **layers).build("towers").save(tmp_path, seed=0)
    labels = np.random.default_rng(2).integers(0, 16, (32, 8))
    np.savez(tmp_path / "data.npz", **{**draw(path, 32), "labels": labels})
    own = Case(tmp_path, path, tmp_path / "data.npz", {})
    train = to.Training(LOSS, "adamw", micro_batches=MICRO_BATCHES, recompute="none")
    found = to.load(path).frontier(
        devices, train=train, epsilon=1.0, stages=stages, schedule=schedule
    )
    plan = tmp_path / "plan"
    point = next(p for p in found if p.found.pipeline.branches)  # type: ignore[attr-defined]
    point.compile(plan)
    assert validate(plan) == []
    read = Plan.load(plan).staged
    assert read is not None
    pairs = zip(read.schedule.reads, point.found.pipeline.schedule.reads, strict=True)  # type: ignore[attr-defined]
    assert all({*own} <= {*planned} for own, planned in pairs)
    assert read.schedule.reads != chain(read.schedule.chunks)
    assert difference(own.run(plan, 50), own.wanted(50)) < TOLERANCE


def test_the_fullest_stage_is_a_stage(case: Callable[[str], Case], tmp_path: Path) -> None:
    plan = shutil.copytree(case("mlp").plan("fullest", 2, 2), tmp_path / "plan")
    document = json.loads((plan / "plan.json").read_text())
    document["stages"]["fullest"] = 2
    (plan / "plan.json").write_text(json.dumps(document))
    problems = "\n".join(map(str, validate(plan)))
    assert "stages: fullest: expected a stage of 0 to 1, got: 2" in problems


def test_a_schedule_decides_the_memory(case: Callable[[str], Case]) -> None:
    own = case("mlp")
    plans = {name: Plan.load(own.plan(name, 2, 2, schedule=name)) for name in ("gpipe", "1f1b")}
    assert plans["gpipe"].transient_bytes > 1.2 * plans["1f1b"].transient_bytes


def cut_anywhere(point: to.Point, seed: int) -> to.Point:
    """Return a point in stages with chunks that begin at random places instead.

    Each has a parameter: between the places of two reads there is room for a beginning.
    """
    staged, rng = point.found, np.random.default_rng(seed)
    made = staged.pipeline  # type: ignore[attr-defined]
    reads = made.devices.group_times[0].order.first_reads
    picked = sorted(rng.choice(len(reads) - 1, made.schedule.chunks - 1, replace=False).tolist())
    cuts = [int(rng.integers(reads[one] + 1, reads[one + 1] + 1)) for one in picked]
    own = pipeline_of(made.devices, made.family, cuts)
    return to.Point(point._whole, replace(staged, pipeline=own))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "devices", "stages", "schedule"),
    [
        ("vit", 2, 2, "1f1b"),
        *(
            pytest.param(name, devices, stages, schedule, marks=pytest.mark.slow)
            for name in ("cnn", "gpt2", "llama", "vit", "lstm")
            for devices, stages in ((2, 2), (4, 2))
            for schedule in SCHEDULES
        ),
    ],
)
def test_random_cuts(
    case: Callable[[str], Case], name: str, devices: int, stages: int, schedule: str
) -> None:
    own = case(name)
    train = to.Training(LOSS, "adamw", micro_batches=MICRO_BATCHES)
    asked: Any = {"stages": stages, "schedule": schedule, "epsilon": 1.0}
    point = to.load(own.path).frontier(devices, train=train, **asked).fastest
    for seed in range(2):
        plan = own.folder / f"cut-{seed}-{schedule}-{devices}"
        cut_anywhere(point, seed).compile(plan)
        assert validate(plan) == []
        assert difference(own.run(plan, 50), own.wanted(50)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("schedule", FAMILIES)
@pytest.mark.parametrize(("devices", "stages"), [(2, 2), (4, 2), (4, 4)])
@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt2"])
def test_every_schedule(
    case: Callable[[str], Case], name: str, devices: int, stages: int, schedule: str
) -> None:
    check(case(name), devices, stages, schedule)


@pytest.mark.parametrize(
    ("schedule", "asked"),
    [
        ("1f1b", {"clip_norm": 0.5, "pick": "leanest"}),
        ("zb-h1", {"precision": "float16"}),
        ("1f1b", {"recompute": "blocks"}),
    ],
)
def test_split_layers(case: Callable[[str], Case], schedule: str, asked: dict[str, Any]) -> None:
    check(case("gpt2"), 4, 2, schedule, **asked)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("name", "devices", "schedule", "asked"),
    [
        ("mlp", 2, "interleaved", {}),
        ("gpt2", 2, "zb-h1", {}),
        ("gpt2", 4, "1f1b", {"clip_norm": 0.5, "pick": "leanest"}),
    ],
)
def test_every_loss_on_cuda_is_that_of_one_device(
    case: Callable[[str], Case], name: str, devices: int, schedule: str, asked: dict[str, Any]
) -> None:
    """On stand-ins for NCCL and CUDA, in two stages."""
    check(case(name), devices, 2, schedule, "cuda", **asked)


def test_values_pass_through_the_host_once(case: Callable[[str], Case], log: Path) -> None:
    """A device copies each value that it sends or receives, and no other value between tasks."""
    own = case("mlp")
    plan = own.plan("copies", 2, 2, schedule="1f1b")

    def copies(steps: int) -> Counter[int]:
        before = [len(calls(log, rank)) for rank in range(2)]
        own.run(plan, steps, provider="cuda")
        made = [call for rank in range(2) for call in calls(log, rank)[before[rank] :]]
        return Counter(call["bytes"] for call in made if call.get("kind") == DEFAULT)

    passed = Plan.load(plan).document["stages"]["passed"]
    stages = {"forward0": 0, "backward0": 0, "forward1": 1, "backward1": 1}
    sent = [v for v in passed if any(stages[v["graph"]] != stages[r] for r in v["read_by"])]
    sizes = Counter(4 * math.prod(value["shape"]) for value in sent)
    more = copies(4) - copies(2)
    assert sent
    assert {size: more[size] for size in sizes} == {
        size: 2 * 2 * MICRO_BATCHES * count for size, count in sizes.items()
    }


def test_a_checkpoint_goes_on_with_any_plan(case: Callable[[str], Case], tmp_path: Path) -> None:
    own, half = case("gpt2"), STEPS // 2
    staged = own.plan("two", 2, 2, schedule="zb-h1")
    one = own.plan("whole", 1, 1)
    first = own.run(staged, half, checkpoint=str(tmp_path / "a"))
    second = own.run(one, half, resume=str(tmp_path / "a"))
    assert difference(first + second, own.wanted()) < TOLERANCE
    first = own.run(one, half, checkpoint=str(tmp_path / "b"))
    second = own.run(staged, half, resume=str(tmp_path / "b"))
    assert difference(first + second, own.wanted()) < TOLERANCE


def test_a_rank_of_the_middle_stage_is_killed(case: Callable[[str], Case], tmp_path: Path) -> None:
    own = case("mlp")
    plan = own.plan("killed", 3, 3)
    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", str(plan), "--train"]
    command += ["--data", str(own.data), "--steps", "1000000", "--threads", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen(command, env=environment, **pipes)
    end = time.monotonic() + LIMIT_S
    while len(list(tmp_path.glob("*/rank*.up"))) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    process = rank_processes(tmp_path)[1]
    spent = processor_s(process)
    while processor_s(process) < spent + BURNT_S:
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    out, err = job.communicate(timeout=LIMIT_S)
    said = "error: rank 1 of 3 was killed by signal 9 (out of memory?)\n"
    assert (job.returncode, out, err) == (1, "", said)


def test_the_first_value_that_is_not_finite(
    case: Callable[[str], Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, data = case("mlp"), perceptron_data()
    data["x"][20] = 3e38
    np.savez(tmp_path / "data.npz", **data)
    plan = own.plan("finite", 2, 2)
    flags = ["--train", "--data", str(tmp_path / "data.npz"), "--steps", "3"]
    status = main([str(plan), *flags])
    assert status == 1
    said = capsys.readouterr().err
    assert "step 1: the loss is nan, first not finite: '" in said
    assert "of forward0 on rank 0 of stage 0" in said


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"devices": 4, "stages": 3}, "stages: expected a divisor of devices 4, got: 3"),
        ({"devices": 4, "schedule": "gpipe"}, "schedule is of a pipeline, expected stages of 2"),
        ({"devices": 128, "stages": 128}, "stages: expected at most 8 stages for 8 first reads"),
    ],
)
def test_refusals(case: Callable[[str], Case], asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train = to.Training(LOSS, micro_batches=2, recompute="none")
        to.load(case("mlp").path).frontier(train=train, **asked)[0].compile("unwritten")
