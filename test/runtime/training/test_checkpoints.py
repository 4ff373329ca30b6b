"""Checkpoints: whole tensors whatever the plan, always complete, refused where they do not fit."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from handmade_classifier import Classifier
from safetensors import safe_open
from safetensors.numpy import load_file
from sealed import save_sealed

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.checkpoint import Progress, weights_of, write_checkpoint
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

METADATA = {
    "format": "tensoropt-checkpoint-2",
    "model": "m.onnx",
    "model_sha256": "0",
    "optimizer": '{"name": "sgd"}',
    "moments": "null",
    "progress": "{}",
}


def losses(entries) -> list[float]:
    return [entry["loss"] for entry in entries]


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "np") as file:
        return file.metadata()


@pytest.mark.parametrize(
    ("before", "after"), [("data2", "zero2"), ("zero2", "data1"), ("data1", "zero2")]
)
def test_another_plan_goes_on(train, plans, tmp_path, before: str, after: str) -> None:
    options = {"shuffle": 5, "schedule": "cosine", "total_steps": 14}
    _, unbroken = train(plans["data2"], 14, **options)
    checkpoint = str(tmp_path / "checkpoints")
    (tmp_path / "log.jsonl").unlink()
    train(plans[before], 9, checkpoint=checkpoint, **options)
    result, entries = train(plans[after], 5, resume=checkpoint, **options)
    assert [entry["step"] for entry in entries] == list(range(1, 15))  # one log
    assert (result.step, result.steps) == (14, 5)
    np.testing.assert_allclose(losses(entries), losses(unbroken), rtol=1e-4)


def test_the_same_plan_goes_on_exactly(train, classifier: Classifier, tmp_path: Path) -> None:
    plan = classifier.plan(tmp_path / "plan", 2, "zero", micro=2)
    _, unbroken = train(plan, 10)
    (tmp_path / "log.jsonl").unlink()
    train(plan, 6, checkpoint=str(tmp_path / "c"))
    _, entries = train(plan, 4, resume=str(tmp_path / "c" / "step-00000006.safetensors"))
    assert losses(entries) == losses(unbroken)


def test_the_loss_scale_goes_on(train, classifier: Classifier, tmp_path: Path) -> None:
    plan = classifier.plan(tmp_path / "plan", 2, half=True)
    _, unbroken = train(plan, 10)
    (tmp_path / "log.jsonl").unlink()
    train(plan, 3, checkpoint=str(tmp_path / "c"))
    _, entries = train(plan, 7, resume=str(tmp_path / "c"))
    assert [e["loss_scale"] for e in entries] == [e["loss_scale"] for e in unbroken]
    assert losses(entries) == losses(unbroken)


def test_what_a_checkpoint_holds(train, plans, classifier: Classifier, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    result, _ = train(plans["zero2"], 7, checkpoint=str(folder), checkpoint_every=2)
    assert [path.name for path in sorted(folder.iterdir())] == [
        "step-00000006.safetensors",
        "step-00000007.safetensors",
    ]
    path = folder / "step-00000007.safetensors"
    assert result.checkpoint == str(path)
    held = load_file(path)
    moments = {f"{n}.{m}" for n in classifier.weights for m in ("mean", "variance")}
    assert held.keys() == {*classifier.weights, *classifier.buffers, *moments}
    assert held["w1.mean"].shape == (6, 8)
    facts = metadata(path)
    assert json.loads(facts["progress"]) == {
        "step": 7,
        "updates": 7,
        "samples": 28,
        "loss_scale": None,
        "good_steps": 0,
    }
    assert facts["model"] == "classifier.onnx"
    assert json.loads(facts["optimizer"])["name"] == "adam"


def spoilt(path: Path, change) -> Path:
    """Write a copy of a checkpoint after ``change`` of its tensors and metadata."""
    tensors, facts = load_file(path), metadata(path)
    change(tensors, facts)
    out = path.with_name("spoilt.safetensors")
    save_sealed(tensors, out, facts)
    return out


def set_optimizer(name: str):
    return lambda tensors, facts: facts.update(optimizer=json.dumps({"name": name}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, f: t.pop("w1.mean"), "tensor 'w1.mean' is missing"),
        (lambda t, f: t.update(q=t["b"]), "tensor 'q' is not in the state of "),
        (
            lambda t, f: t.update(w1=np.zeros((8, 6), np.float32)),
            "tensor 'w1': expected F32 6x8, got: F32 8x6",
        ),
        (lambda t, f: t.update(b=np.zeros(8)), "tensor 'b': expected F32 8, got: F64 8"),
        (set_optimizer("sgd"), "checkpoint of another optimizer, expected adam, got: sgd"),
        (
            lambda t, f: f.update(model_sha256="0", model="other.onnx"),
            "checkpoint of another model, expected classifier.onnx with sha256 ",
        ),
        (lambda t, f: f.clear(), "not a checkpoint of this tensoropt, expected metadata format"),
        (lambda t, f: f.pop("moments"), "not a checkpoint: metadata: KeyError: 'moments'"),
        (lambda t, f: f.update(progress="{"), "not a checkpoint: metadata: JSONDecodeError: "),
        (lambda t, f: f.update(moments="null"), "has no moments after step 1, expected them"),
        (
            lambda t, f: f.update(moments="null", progress="{}"),
            "tensor 'b.mean' is not in the state of ",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit(train, plans, tmp_path, change, message: str) -> None:
    train(plans["data1"], 1, checkpoint=str(tmp_path / "c"))
    path = spoilt(tmp_path / "c" / "step-00000001.safetensors", change)
    with pytest.raises(UserError) as error:
        train(plans["data1"], 1, resume=str(path))
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"progress": "{"}, "JSONDecodeError: "),
        ({"progress": '{"steps": 1}'}, "TypeError: "),
        ({"optimizer": "[]"}, "TypeError: "),
    ],
)
def test_metadata_that_cannot_be_read(tmp_path: Path, facts: dict[str, str], message: str) -> None:
    path, whole = tmp_path / "c.safetensors", dict(METADATA)
    save_sealed({"w": np.zeros(2, np.float32)}, path, whole)
    assert list(weights_of(path)) == ["w"]
    save_sealed({"w": np.zeros(2, np.float32)}, path, {**whole, **facts})
    with pytest.raises(UserError) as error:
        weights_of(path)
    assert str(error.value).startswith(f"{path}: not a checkpoint: metadata: {message}")


def test_a_checkpoint_of_no_step_has_no_moments(train, plans, tmp_path: Path) -> None:
    """From what a plan starts from, whole and without moments, follows what follows from it."""
    _, expected = train(plans["zero2"], 3)
    (tmp_path / "log.jsonl").unlink()
    train(plans["data1"], 1, checkpoint=str(tmp_path / "c"))
    (tmp_path / "log.jsonl").unlink()
    start = load_file(plans["data1"] / "weights" / "rank0.safetensors")

    def begin(tensors, facts) -> None:
        tensors.clear()
        tensors.update(start)
        facts.update(moments="null", progress="{}")

    path = spoilt(tmp_path / "c" / "step-00000001.safetensors", begin)
    _, found = train(plans["zero2"], 3, resume=str(path))
    assert losses(found) == losses(expected)


def test_no_checkpoint(train, plans, tmp_path: Path) -> None:
    for place, message in (
        (tmp_path, "expected a checkpoint in the folder, got: none"),
        (tmp_path / "no.safetensors", "no such checkpoint"),
    ):
        with pytest.raises(UserError) as error:
            train(plans["data1"], 1, resume=str(place))
        assert str(error.value) == f"{place}: {message}"
    (tmp_path / "a.safetensors").write_bytes(b"\x10" + bytes(30))
    with pytest.raises(UserError, match=r"a\.safetensors: not a checkpoint: "):
        train(plans["data1"], 1, resume=str(tmp_path / "a.safetensors"))


# The rank that writes stops in the middle of the second checkpoint, and is killed there.
_STOPS = """
import sys, time
from pathlib import Path
import tensoropt.runtime.training.checkpoint as checkpoint
gather, calls = checkpoint.gather_into, []
def slow(*arguments):
    gather(*arguments)
    calls.append(1)
    if len(calls) == 15:
        Path(sys.argv[1]).touch()
        time.sleep(60)
checkpoint.gather_into = slow
from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.work import run_training
from tensoropt.runtime.launch.world import world
job = TrainJob(sys.argv[2], steps=4, data=sys.argv[3], checkpoint=sys.argv[4], checkpoint_every=2)
run_training(job, world(), LauncherLink())
"""


def test_killed_in_the_middle_of_writing(train, plans, data, tmp_path: Path) -> None:
    folder, flag = tmp_path / "checkpoints", tmp_path / "flag"
    given = [flag, plans["data1"], data, folder]
    child = subprocess.Popen([sys.executable, "-c", _STOPS, *map(str, given)])
    end = time.monotonic() + 30
    while not flag.exists():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2
    assert names[0].endswith(".tmp")
    assert names[1] == "step-00000002.safetensors"
    result, _ = train(plans["zero2"], 2, resume=str(folder), checkpoint=str(folder))
    assert (result.step, result.error) == (4, None)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["step-00000002.safetensors", "step-00000004.safetensors"]


def test_a_place_that_cannot_be_written_to(train, plans, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^checkpoint .*file: file exists"):
        train(plans["data1"], 1, checkpoint=str(tmp_path / "file"))


def test_a_folder_with_later_steps(train, plans, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    train(plans["data1"], 4, checkpoint=str(folder), checkpoint_every=2)
    first = str(folder / "step-00000002.safetensors")
    for options, step in (({}, 0), ({"resume": first}, 2)):
        with pytest.raises(UserError) as error:
            train(plans["data1"], 1, checkpoint=str(folder), **options)
        assert str(error.value) == (
            f"checkpoint {folder}: has step-00000004.safetensors, of a later step than {step}, "
            f"expected resume {folder}, or another folder"
        )


class Alone:
    """The communicator of one rank."""

    rank = 0

    def bcast(self, value):
        return value


def test_a_full_disk(plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    held = Held(TrainingPlan.from_plan(Plan.load(plans["data1"])), 0)
    with pytest.raises(UserError, match=r"step\.safetensors: no space left on device, free"):
        write_checkpoint(tmp_path / "step.safetensors", held, Progress(), Alone())
    assert list(tmp_path.iterdir()) == []
