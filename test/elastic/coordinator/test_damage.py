"""Damaged files of families and jobs: refused, or replaced by an older state, never trained on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from made_families import FLAGS, perceptron, write
from running_jobs import RunningJob, unbroken


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a family for 1 and 2 devices, and its data."""
    folder = tmp_path_factory.mktemp("made")
    flags = ("--loss", "mse:y,t", *FLAGS, "--devices", "2", "-o", folder / "family")
    write(perceptron(folder), *flags)
    draw = np.random.default_rng(0)
    x, t = draw.standard_normal((1100, 64)), draw.standard_normal((1100, 32))
    np.savez(folder / "data.npz", x=x.astype(np.float32), t=t.astype(np.float32))
    return folder


@pytest.fixture
def subject(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    return Path(shutil.copytree(made, tmp_path / "subject"))


@pytest.fixture
def begin(subject: Path) -> Iterator[object]:
    """Start a job on 2 devices, which is killed at the end of the test."""
    jobs: list[RunningJob] = []

    def begin(steps: int, *flags: object) -> RunningJob:
        data = ("--data", subject / "data.npz", "--steps", steps, "--devices", 2, "--threads", 1)
        jobs.append(RunningJob("damaged", subject / "family", *data, *flags))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.kill()


def flip(path: Path, place: int) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 64
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("initial.safetensors", -1, "damaged: tensor '"),
        ("initial.safetensors", 40, "damaged: its header"),
        ("2/rank1.onnx", 60, "2: rank1.onnx was changed after the plan was written"),
        ("2/plan.json", 75, "2/plan.json is not the one that the family was written with"),
    ],
)
def test_a_damaged_family_is_refused(subject: Path, begin, name: str, place: int, message: str):
    flip(subject / "family" / name, place)
    job = begin(20)
    status, out, err = job.end()
    assert status == 1
    assert message in err
    assert len(err.splitlines()) == 1
    assert "ended after step" not in out


def test_a_damaged_checkpoint_is_set_aside_for_an_older_one(subject: Path, begin, tmp_path: Path):
    folder = tmp_path / "checkpoints"
    flags = ("--checkpoint", folder, "--checkpoint-every", 20, "--snapshot-every", 0)
    job = begin(400, *flags)
    job.wait(lambda status: status.step >= 60)
    stopped = job.client().status()
    for rank in stopped.ranks:
        os.kill(rank.pid, signal.SIGSTOP)
    newest = max(folder.glob("step-*.safetensors"))
    flip(newest, -1)
    os.kill(stopped.ranks[-1].pid, signal.SIGKILL)
    status, _, err = job.end()
    assert (status, err) == (0, "")
    events = {event.kind: event.text for event in job.client().events()}
    assert f"{newest}: damaged: tensor '" in events["damaged"]
    assert f"renamed to {newest.name}.damaged" in events["damaged"]
    assert newest.with_name(f"{newest.name}.damaged").exists()
    expected = unbroken(
        subject / "family", subject / "data.npz", 400, tmp_path / "log", "--threads", 1
    )
    np.testing.assert_allclose(job.losses(), expected, rtol=1e-4)
