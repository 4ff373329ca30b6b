"""Steps on real ranks against the same in NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from handmade_classifier import Classifier
from handmade_training import LeastSquares
from safetensors.numpy import load_file

from tensoropt.runtime.launch.start import start
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.outcome import measure


def losses(entries) -> list[float]:
    return [entry["loss"] for entry in entries]


# 50 steps in place give what NumPy gives, where every step has arrays of its own.
@pytest.mark.parametrize(
    ("kind", "ranks", "micro"),
    [("data", 1, 1), ("data", 2, 1), ("zero", 2, 1), ("data", 2, 3), ("zero", 2, 2)],
)
def test_fifty_steps_in_place(train, classifier, data, tmp_path, kind, ranks, micro) -> None:
    plan = classifier.plan(tmp_path / "plan", ranks, kind, micro)
    checkpoint = tmp_path / "checkpoints"
    result, entries = train(plan, 50, checkpoint=str(checkpoint))
    expected, state = classifier.steps(dict(np.load(data)), 50, lambda step: 0.01, micro)
    np.testing.assert_allclose(losses(entries), expected, rtol=1e-4)
    assert [entry["step"] for entry in entries] == list(range(1, 51))
    assert (result.step, result.steps, result.samples) == (50, 50, 200 * micro)
    assert (result.first_loss, result.last_loss) == (entries[0]["loss"], entries[-1]["loss"])
    held = load_file(checkpoint / "step-00000050.safetensors")
    for name, array in state.items():
        np.testing.assert_allclose(held[name], array, rtol=2e-3, atol=1e-5, err_msg=name)


def test_what_the_plans_own_oracle_says(tmp_path: Path) -> None:
    model = LeastSquares(tmp_path)
    random = np.random.default_rng(1)
    x, t = random.standard_normal((8, 3), np.float32), random.standard_normal((8, 1), np.float32)
    np.savez(tmp_path / "data.npz", x=x, t=t)
    job = TrainJob(
        str(model.plan(tmp_path / "plan")),
        steps=12,
        data=str(tmp_path / "data.npz"),
        learning_rate=0.05,
        log=str(tmp_path / "log"),
    )
    assert start(job).error is None
    found = losses(map(json.loads, (tmp_path / "log").read_text().splitlines()))
    batches = [(x[i : i + 4], t[i : i + 4]) for i in (0, 4)] * 6
    np.testing.assert_allclose(found, model.losses(batches, 0.05), rtol=1e-4)


def test_what_is_held(train, plans) -> None:
    whole, _ = train(plans["data2"], 2)
    shared, _ = train(plans["zero2"], 2)
    size = 4 * (6 * 8 + 8 * 4 + 8)
    kinds = {"parameters_bytes": 1, "gradients_bytes": 1, "optimizer_bytes": 2}
    assert {k: whole.held_bytes[k] for k in kinds} == {k: n * size for k, n in kinds.items()}
    assert {k: shared.held_bytes[k] * 2 for k in kinds} == {k: n * size for k, n in kinds.items()}
    assert whole.held_bytes["buffers_bytes"] == shared.held_bytes["buffers_bytes"] == 24
    assert whole.held_bytes["constants_bytes"] > 0
    assert whole.peak_bytes is None or 0 < whole.peak_bytes < 1 << 30


def test_the_learning_rate_follows_its_schedule(train, classifier, plans, data) -> None:
    _, entries = train(plans["data2"], 6, warmup=2, schedule="linear")
    rates = [0.005, 0.01, 0.01, 0.0075, 0.005, 0.0025]
    assert [entry["learning_rate"] for entry in entries] == pytest.approx(rates)
    expected, _ = classifier.steps(dict(np.load(data)), 6, lambda step: rates[step - 1])
    np.testing.assert_allclose(losses(entries), expected, rtol=1e-4)


def test_an_overflow_halves_the_loss_scale_and_drops_the_step(
    train, classifier, data, tmp_path
) -> None:
    plan = classifier.plan(tmp_path / "plan", 2, half=True)
    checkpoint = tmp_path / "checkpoints"
    result, entries = train(plan, 8, checkpoint=str(checkpoint))
    scales = [entry["loss_scale"] for entry in entries]
    dropped = [entry.get("skipped", False) for entry in entries]
    count = sum(dropped)
    assert (result.error, result.skipped) == (None, count)
    assert dropped == [True] * count + [False] * (8 - count)
    causes = [entry.get("not_finite") for entry in entries]
    assert causes == ["gradients"] * count + [None] * (8 - count)
    assert count > 0
    assert scales == [65536 / 2 ** min(i, count) for i in range(8)]
    # What was dropped changed nothing: the rest are the steps of a run on the data after it.
    rest = {name: np.roll(array, -4 * count, 0) for name, array in np.load(data).items()}
    expected, state = classifier.steps(rest, 8 - count, lambda step: 0.01)
    np.testing.assert_allclose(losses(entries)[count:], expected, rtol=2e-3)
    held = load_file(checkpoint / "step-00000008.safetensors")
    np.testing.assert_allclose(held["x.mean"], state["x.mean"], rtol=1e-4, atol=1e-6)
    fixed, _ = train(plan, 3, loss_scale=128.0)
    assert (fixed.error, fixed.skipped) == (None, 0)


def test_a_fixed_loss_scale_that_overflows(train, classifier, tmp_path) -> None:
    plan = classifier.plan(tmp_path / "plan", 2, half=True)
    result, entries = train(plan, 3, loss_scale=2.0**20)
    assert entries == []
    assert result.error is not None
    assert result.error.startswith("step 1: a gradient is not finite, first not finite: 'h.")
    assert "of Cast node ''" in result.error


def test_under_mpiexec(classifier: Classifier, plans, data, tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-launcher", "fork", "-n", "2", sys.executable]
    command += ["-m", "tensoropt.runtime.cli.run", plans["zero2"], "--train", "--data", data]
    command += ["--steps", "3", "--log", tmp_path / "log", "--learning-rate", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("step 3: loss ")
    assert done.stdout.count("memory per device") == 1
    expected, _ = classifier.steps(dict(np.load(data)), 3, lambda step: 0.01)
    found = losses(map(json.loads, (tmp_path / "log").read_text().splitlines()))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_peak_is_read_before_constants_are_counted() -> None:
    """To count them takes memory, which no step takes."""
    held = [100]

    def count() -> int:
        held[0] += 50
        return 8

    plan: Any = SimpleNamespace(
        document={"predicted": {"time_s": 0.1, "expected_error": None}}, process_bytes=90
    )
    provider = SimpleNamespace(used_bytes=lambda: None)
    trainer: Any = SimpleNamespace(
        plan=SimpleNamespace(plan=plan, stage=lambda rank: 0, fullest=0),
        held=SimpleNamespace(bytes_by_kind=lambda: {"parameter_bytes": 4}, provider=provider),
        constant_bytes=count,
        nodes_on_cpu=lambda: None,
    )
    memory: Any = SimpleNamespace(bytes=lambda: held[0])
    alone: Any = SimpleNamespace(rank=0, allgather=lambda value: [value])
    found = measure(trainer, memory, alone)
    assert (found["peak_bytes"], found["held_bytes"]["constants_bytes"]) == (100, 8)
