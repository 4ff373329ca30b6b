"""Bad input while training: one line that says what and where."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from handmade import edit
from handmade_classifier import Classifier
from launched import started
from safetensors.numpy import load_file

from tensoropt.runtime.cli.run import main
from tensoropt.runtime.training.checkpoint import find_checkpoint
from tensoropt.runtime.training.labels import describe_integers


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def refused(capsys, *arguments: object) -> str:
    """Return the one line that a refused command says."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").rstrip("\n")


@pytest.fixture
def spoilt(classifier: Classifier, tmp_path: Path):
    """Make a data file of 12 samples, changed."""

    def make(change) -> Path:
        held = classifier.data(12)
        change(held)
        path = tmp_path / "spoilt.npz"
        np.savez(path, **held)
        return path

    return make


def test_a_summary(capsys, plans, data) -> None:
    status, out, err = run(capsys, plans["zero2"], "--train", "--data", data, "--steps", 3)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].startswith("step 3: loss ")
    assert lines[0].endswith(" in 3 steps")
    assert lines[1].startswith("step time: median ")
    assert lines[1].endswith(" samples per second")
    assert lines[2].split() == ["memory", "per", "device", "held", "predicted"]
    assert [line.split()[0] for line in lines[3:]] == [
        "parameters",
        "gradients",
        "optimizer",
        "buffers",
        "constants",
        "static",
        "peak",
    ]


def test_json(capsys, plans, data) -> None:
    flags = ["--train", "--data", data, "--steps", 3, "--format", "json"]
    status, out, _ = run(capsys, plans["data2"], *flags)
    facts = json.loads(out)
    assert status == 0
    assert (facts["step"], facts["steps"], facts["samples"]) == (3, 3, 12)
    assert (facts["ranks"], facts["mesh"]) == (2, [2])
    assert facts["held_bytes"]["parameters_bytes"] == 352
    assert facts["predicted_peak_bytes"] == 10
    assert facts["samples_per_s"] == pytest.approx(4 / facts["step_time_s"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--train: expected --data too"),
        (["--data", "d"], "--train: expected --steps too, at least 1"),
        (["--data", "d", "--steps", "0"], "--train: expected --steps too, at least 1"),
        (["--check", "m"], "--check: not with --train"),
        (["--inputs", "m"], "--inputs: not with --train"),
        (["--data", "d", "--steps", "1", "--export", "o"], "--export: expected --model too"),
        (["--data", "d", "--steps", "1", "--model", "o"], "--model: expected --export too"),
        (
            ["--data", "d", "--steps", "1", "--checkpoint-every", "1"],
            "--checkpoint-every: expected --checkpoint too",
        ),
        (["--learning-rate", "-1"], "--learning-rate: expected a number from 0, got: '-1'"),
        (
            ["--schedule", "step"],
            "--schedule: expected 'constant', 'cosine' or 'linear', got: 'step'",
        ),
    ],
)
def test_flags_that_do_not_go_together(capsys, plans, flags, message: str) -> None:
    assert refused(capsys, plans["data1"], "--train", *flags).startswith(message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "3"], "--steps: expected --train"),
        (["--checkpoint-every", "3"], "--checkpoint-every: expected --train"),
        (["--resume", "c"], "--resume: expected --train, or --resume, --export and --model"),
        (["--export", "o"], "--export without --train: expected --resume too"),
    ],
)
def test_flags_without_train(capsys, plans, flags, message: str) -> None:
    assert refused(capsys, plans["data1"], *flags) == message


def test_the_other_kind_of_plan(capsys, plans, data, classifier, plan: Path) -> None:
    found = refused(capsys, plans["data1"], "--check", classifier.model)
    assert found == f"{plans['data1']}: is a plan for training, expected --train"
    found = refused(capsys, plan, "--train", "--data", data, "--steps", 1)
    made = "expected one made by: tensoropt-opt MODEL --train --loss LOSS -o PLAN"
    assert found == f"{plan}: is a plan for inference, {made}"


def test_several_plans(capsys, plans, data) -> None:
    flags = [plans["data1"], plans["data2"], "--train", "--data", data, "--steps", 1]
    assert refused(capsys, *flags) == "--train: expected one plan, got: 2"


def test_places(capsys, plans, data, tmp_path: Path) -> None:
    flags = [plans["data1"], "--train", "--data", data, "--steps", 1]
    log = tmp_path / "none" / "log"
    assert refused(capsys, *flags, "--log", log).startswith(f"--log {log}: no such file")
    out = ["--export", tmp_path / "none" / "o.onnx", "--model", data]
    assert "not the model that" in refused(capsys, *flags, *out)
    found = refused(capsys, *flags, "--loss-scale", 8)
    assert found == f"--loss-scale: {plans['data1']} has none, expected --precision float16 in it"


@pytest.mark.parametrize(
    ("label", "ignored", "classes"),
    [
        (4, {}, "0 to 3"),
        (-5, {"ignore_index": -100}, "0 to 3, or -100 to ignore a label"),
        (-100, {"ignore_index": 2}, "0 to 3, or 2 to ignore a label"),
    ],
)
def test_a_label_out_of_range(
    capsys, classifier, spoilt, tmp_path: Path, label: int, ignored: dict[str, int], classes: str
) -> None:
    plan = classifier.plan(tmp_path / "plan", 2)
    edit(plan, lambda content: content["training"]["loss"].update(classes=4, **ignored))
    data = spoilt(lambda held: held["labels"].__setitem__(6, label))
    found = refused(capsys, plan, "--train", "--data", data, "--steps", 3)
    expected = f"step 2: input 'labels': expected classes from {classes}, got: {label}"
    assert found == f"rank 1 of 2: {expected}"


def test_nan_in_the_data(capsys, plans, spoilt, tmp_path: Path) -> None:
    data = spoilt(lambda held: held["x"].__setitem__((7, 2), np.nan))
    checkpoint, log = tmp_path / "checkpoints", tmp_path / "log"
    flags = ["--train", "--data", data, "--steps", 3, "--checkpoint", checkpoint, "--log", log]
    found = refused(capsys, plans["zero2"], *flags)
    kept = checkpoint / "step-00000001.safetensors"
    assert found == (
        f"{plans['zero2']}: step 2: the loss is nan, first not finite: input 'x' on rank 1 "
        f"(the state before it is in {kept})"
    )
    assert find_checkpoint(checkpoint) == kept
    assert all(np.isfinite(array).all() for array in load_file(kept).values())
    assert len(log.read_text().splitlines()) == 1


def test_the_first_node_that_is_not_finite(capsys, plans, spoilt) -> None:
    data = spoilt(lambda held: held["x"].__setitem__((7, 2), 3e38))
    found = refused(capsys, plans["data2"], "--train", "--data", data, "--steps", 3)
    assert "step 2: the loss is nan, first not finite: 'z' of MatMul node 'fc1' on rank 1" in found


def test_micro_batches_that_are_not_finite(capsys, classifier, spoilt, tmp_path) -> None:
    plan = classifier.plan(tmp_path / "plan", 2, micro=2)
    data = spoilt(lambda held: held["x"].__setitem__((5, 0), 3e38))
    found = refused(capsys, plan, "--train", "--data", data, "--steps", 3)
    assert "step 1: the loss is nan, first not finite: 'z' of MatMul node 'fc1' on rank 0" in found


def interrupted(
    command: list[object], log: Path, number: int = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    """Run a command and send it a signal, Ctrl-C by default, once its log has lines."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tensoropt.runtime.cli.run", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 30
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    return subprocess.CompletedProcess(command, child.returncode, out, err)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.quick), signal.SIGHUP]
)
def test_a_signal_finishes_the_step(plans, data, tmp_path: Path, number: int) -> None:
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoints"
    flags = ["--train", "--data", data, "--steps", 10**7, "--log", log, "--checkpoint", checkpoint]
    done = interrupted([plans["data2"], *flags], log, number)
    assert (done.returncode, done.stderr) == (128 + number, "")
    last = json.loads(log.read_text().splitlines()[-1])["step"]
    assert find_checkpoint(checkpoint).name == f"step-{last:08d}.safetensors"
    assert done.stdout.startswith(f"step {last}: loss ")


def test_a_signal_to_ranks_that_were_started_by_hand(plans, data, tmp_path: Path) -> None:
    """As Slurm does, which sends SIGTERM to every process of a step."""
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoints"
    flags = ["--train", "--data", data, "--steps", 10**7, "--log", log, "--checkpoint", checkpoint]
    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", plans["data2"], *flags]
    with started(2, command) as ranks:
        end = time.monotonic() + 30
        while not (log.exists() and log.stat().st_size):
            assert time.monotonic() < end, "did not happen in time"
            time.sleep(0.02)
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        out, err = ranks[0].communicate(timeout=30)
        assert (ranks[0].returncode, err) == (143, "")
    last = json.loads(log.read_text().splitlines()[-1])["step"]
    assert find_checkpoint(checkpoint).name == f"step-{last:08d}.safetensors"
    assert out.startswith(f"step {last}: loss ")


def test_a_timeout(capsys, plans, data) -> None:
    flags = ["--train", "--data", data, "--steps", 10**7, "--timeout", 2]
    found = refused(capsys, plans["data2"], *flags)
    assert found.startswith("no result within --timeout 2 s")


def test_an_index_that_onnx_runtime_refuses() -> None:
    batch = {"ids": np.array([3, 60]), "x": np.zeros(2)}
    words = "indices element out of data bounds, idx=60 must be within the inclusive range [-50,49]"
    assert describe_integers(words, batch) == " (in this batch 'ids' holds 3 to 60)"
    assert describe_integers("no memory", batch) == ""


def test_a_line_that_changes_on_a_terminal(plans, data, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    flags = ["--train", "--data", data, "--steps", "3000", "--timeout", "60"]
    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", plans["data1"], *flags]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    out, _ = child.communicate(timeout=60)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert child.returncode == 0
    assert re.search(r"step \d+ of 3000, loss [\d.]+, [\d.]+ ms, [\d.e+]+ samples/s", shown)
    assert shown.endswith("\r\x1b[K")
    assert "step 3000: loss " in out


@pytest.mark.parametrize("kind", ["data2", "zero2"])
def test_a_step_that_is_not_finite_can_be_skipped(
    train, classifier, plans, spoilt, tmp_path: Path, kind: str
) -> None:
    """The second of four steps has NaN in the part of one rank; the others are as without it."""
    data = spoilt(lambda held: held["x"].__setitem__((7, 2), np.nan))
    checkpoint = tmp_path / "checkpoints"
    options = {"data": str(data), "checkpoint": str(checkpoint), "skip_not_finite": True}
    result, entries = train(plans[kind], 4, **options)
    assert (result.error, result.skipped, result.step) == (None, 1, 4)
    assert [entry.get("not_finite") for entry in entries] == [None, "loss", None, None]
    assert [entry.get("skipped", False) for entry in entries] == [False, True, False, False]
    assert entries[1]["loss"] is None
    rest = {name: np.delete(array, slice(4, 8), 0) for name, array in np.load(data).items()}
    expected, state = classifier.steps(rest, 3, lambda step: 0.01)
    losses = [entry["loss"] for entry in entries if entry["loss"] is not None]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    held = load_file(checkpoint / "step-00000004.safetensors")
    for name, array in state.items():
        np.testing.assert_allclose(held[name], array, rtol=2e-3, atol=1e-5, err_msg=name)


STUCK = """
import time
import numpy as np
class Samples:
    def __len__(self):
        return 12
    def __getitem__(self, index):
        if index == 9:
            time.sleep(600)
        return {"x": np.zeros(6, np.float32), "labels": np.int64(1)}
"""


def test_a_job_without_collectives_that_stalls_is_ended(capsys, plans, tmp_path: Path) -> None:
    """The data of the third step never come."""
    (tmp_path / "stuck.py").write_text(STUCK)
    data, flags = f"{tmp_path / 'stuck.py'}:Samples", ["--steps", 3, "--stall", 3]
    found = refused(capsys, plans["data1"], "--train", "--data", data, *flags)
    assert found.startswith("no rank has made progress within --stall 3 s: rank 0 of 1 is ")
