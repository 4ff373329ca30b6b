"""A job on CUDA devices, on stand-ins: its state goes from device to device."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from elasticity import source
from made_families import small_family
from running_jobs import RunningJob, unbroken
from stand_ins import environment

from tensoropt.elastic.control import RefusedError

FLAGS = ("--shuffle", 3, "--threads", 1, "--learning-rate", 0.001)
EVERY = 5  # steps between snapshots
PACE_S = 0.02
NO_MEMORY = r"rank \d of 1: GPU 0: no \d+ bytes: cudaMalloc: out of memory .* --method stop-resume"


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data, and a family whose state has moments and what BatchNormalization keeps."""
    folder = tmp_path_factory.mktemp("subject")
    return small_family(folder, "cnn", "--devices", "2", "--optimizer", "adamw")


@pytest.fixture
def switches(tmp_path: Path) -> tuple[Path, Path]:
    """The files that take all memory from the GPUs, and that set them apart."""
    return tmp_path / "full", tmp_path / "apart"


@pytest.fixture
def job(
    subject: tuple[Path, Path],
    switches: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RunningJob]:
    data, family = subject
    given = environment(full=switches[0], apart=switches[1])
    given |= {source.DATA: str(data), source.READS: str(tmp_path), source.PACE: str(PACE_S)}
    for name, value in {**given, "TENSOROPT_JOBS": str(tmp_path / "jobs")}.items():
        monkeypatch.setenv(name, value)
    flags = ("--data", f"{source.__file__}:open_samples", "--steps", 10**6, "--devices", 1, *FLAGS)
    on_cuda = ("--provider", "cuda", "--share-gpus", "--snapshot-every", EVERY)
    job = RunningJob("cuda", family, *flags, *on_cuda)
    yield job
    job.kill()


def test_its_losses_are_those_of_an_unbroken_run_on_the_cpu(
    job: RunningJob, subject: tuple[Path, Path], switches: tuple[Path, Path], tmp_path: Path
) -> None:
    full, apart = switches
    job.wait(lambda status: status.step > 0)
    client = job.client()

    to_two = client.scale(2)
    assert (to_two.to_devices, to_two.moved_by) == (2, "device")
    assert to_two.moved_bytes > 0

    full.touch()
    with pytest.raises(RefusedError, match=NO_MEMORY):
        client.scale(1)
    full.unlink()
    assert client.status().devices == 2

    apart.touch()
    assert client.scale(1).moved_by == "host"
    apart.unlink()
    prepared = [event for event in client.events() if event.kind == "prepared"]
    assert "is moved through host memory: rank 0: GPU 0000" in prepared[-1].text
    assert "comes by" not in prepared[0].text

    crash(job)
    data, family = subject
    losses = job.losses()
    expected = unbroken(family, data, len(losses), tmp_path / "log", *FLAGS)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def crash(job: RunningJob) -> None:
    """Kill a rank when there is a snapshot of its generation, see the job go on, and stop it."""
    client = job.client()
    switched = client.status().step
    seen = job.wait(lambda status: (status.snapshot_step or 0) > switched)
    os.kill(seen.ranks[0].pid, signal.SIGKILL)
    job.wait(lambda status: status.generation > seen.generation and status.state == "training")
    recovered = [event for event in client.events() if event.kind == "recovered"]
    assert "from a snapshot of step" in recovered[0].text
    assert recovered[0].facts["repeated_steps"] <= EVERY
    step = client.status().step
    job.wait(lambda status: status.step > step)
    client.stop()
    assert job.end()[0] == 0
