"""Jobs whose data fail or whose disk is full: they end with the reason, or go on when they can."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from made_families import FLAGS, perceptron, write
from running_jobs import RunningJob, unbroken

SAMPLES = """
import numpy as np

class Samples:
    def __len__(self):
        return 512 * 40

    def __getitem__(self, index):
        if index >= 512 * 25:
            raise OSError("sample is not readable")
        draw = np.random.default_rng(index)
        x, t = (draw.standard_normal(size, np.float32) for size in (64, 32))
        return {"x": x, "t": t}

def samples():
    return Samples()
"""


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a family for 1 and 2 devices, and its data."""
    folder = tmp_path_factory.mktemp("subject")
    flags = ("--loss", "mse:y,t", *FLAGS, "--devices", "2", "-o", folder / "family")
    write(perceptron(folder), *flags)
    draw = np.random.default_rng(0)
    x, t = draw.standard_normal((1100, 64)), draw.standard_normal((1100, 32))
    np.savez(folder / "data.npz", x=x.astype(np.float32), t=t.astype(np.float32))
    (folder / "samples.py").write_text(SAMPLES)
    return folder


@pytest.fixture
def begin(subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Start a job on 1 device, which is killed at the end of the test."""
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    jobs: list[RunningJob] = []

    def begin(steps: int, *flags: object, data: str = "data.npz") -> RunningJob:
        given = ("--data", subject / data, "--steps", steps, "--devices", 1, "--threads", 1)
        jobs.append(RunningJob("failing", subject / "family", *given, *flags))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False)
    if made.returncode:
        pytest.skip("cannot mount a file system here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Leave no room in a file system; returns the file to remove."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1024)):
                pass
        except OSError:
            return path
    raise AssertionError("the disk takes everything")


def test_a_sample_that_cannot_be_read_ends_the_job(begin):
    job = begin(60, "--snapshot-every", 10, data="samples.py:samples")
    status, _, err = job.end()
    assert status == 1
    assert "sample is not readable" in err
    assert "(twice, after step 25)" in err
    kinds = [event.kind for event in job.client().events()]
    assert (kinds.count("lost"), kinds.count("recovered"), kinds[-1]) == (2, 1, "failed")


def test_an_error_with_an_address_repeats_too(begin, subject: Path):
    text = (subject / "samples.py").read_text()
    (subject / "addresses.py").write_text(text.replace('"sample is', 'f"{object()} is'))
    status, _, err = begin(60, "--snapshot-every", 10, data="addresses.py:samples").end()
    assert status == 1
    assert "(twice, after step 25)" in err


def test_a_limit_of_open_files_ends_a_job_that_is_to_start_again(begin):
    job = begin(10**9, "--snapshot-every", 10)
    rank = job.wait(lambda status: status.step > 20).ranks[0]
    resource.prlimit(job.process.pid, resource.RLIMIT_NOFILE, (8, 8))
    os.kill(rank.pid, 9)
    status, _, err = job.end()
    assert status == 1
    assert err.splitlines()[-1].endswith("raise the limit of open files (ulimit -n)")


def test_a_detached_job_that_fails_at_once_is_an_error(begin, subject: Path):
    (subject / "none.py").write_text("def samples():\n    raise OSError('no samples')\n")
    status, out, err = begin(60, "--detach", data="none.py:samples").end()
    assert (status, out) == (1, "")
    assert "no samples" in err


def test_a_longer_job_goes_on_from_the_end_of_a_shorter_one(begin, subject: Path, tmp_path: Path):
    flags = ("--learning-rate", 0.01)
    assert begin(20, *flags).end()[0] == 0
    job = begin(50, *flags)
    status, out, _ = job.end()
    assert (status, out.startswith("job 'failing': ended after step 50")) == (0, True)
    expected = unbroken(
        subject / "family",
        subject / "data.npz",
        50,
        tmp_path / "log",
        *flags,
        "--threads",
        1,
    )
    np.testing.assert_allclose(job.losses(), expected, rtol=1e-4)
    assert begin(20, *flags).end()[0] == 1


def test_the_end_of_a_schedule_stays(begin):
    assert begin(20, "--schedule", "cosine").end()[0] == 0
    status, _, err = begin(50, "--schedule", "cosine").end()
    assert status == 1
    assert "--steps 50: the job 'failing' has a cosine learning rate that ends at step 20" in err
    assert begin(50, "--schedule", "cosine", "--total-steps", 20).end()[0] == 0


def test_a_full_disk_under_a_job_stops_nothing(
    begin, subject: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TENSOROPT_JOBS", str(small_disk / "jobs"))
    flags = ("--checkpoint", tmp_path / "saved", "--snapshot-every", 20)
    job = begin(10**9, *flags)
    before = job.wait(lambda status: status.step > 40)
    filler = fill(small_disk)
    job.wait(lambda status: status.step > before.step + 3000)
    kinds = {event.kind: event.text for event in job.client().events()}
    assert "no space left on device, free some space" in kinds["disk"]
    assert "; the job continues" in kinds["disk"]
    os.kill(job.client().status().ranks[0].pid, 9)
    time.sleep(2)
    assert job.process.poll() is None
    filler.unlink()
    after = job.wait(lambda status: status.state == "training" and status.generation > 1)
    job.wait(lambda status: status.step > after.step + 100)
    job.client().stop()
    status, _, err = job.end()
    assert (status, err) == (0, "")
    losses = job.losses()
    expected = unbroken(
        subject / "family", subject / "data.npz", 2000, tmp_path / "log", "--threads", 1
    )
    np.testing.assert_allclose(losses[:2000], expected, rtol=1e-4)


def test_a_checkpoint_that_has_no_room_is_an_event(begin, small_disk: Path):
    filler = fill(small_disk)
    job = begin(10**9, "--checkpoint", small_disk / "saved", "--checkpoint-every", 50)
    step = job.wait(lambda status: status.step > 120).step
    events = [event for event in job.client().events() if event.kind == "no-checkpoint"]
    assert f"{small_disk}/saved/step-00000050.safetensors" in events[0].text
    assert "no space left on device" in events[0].text
    filler.unlink()
    job.wait(lambda status: status.step > step + 100)
    job.client().stop()
    assert job.end()[0] == 0
    assert list((small_disk / "saved").glob("step-*.safetensors"))
