"""A job with plans in stages: it changes the number of devices, and goes on after a lost rank."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from made_families import FLAGS, chain, write
from running_jobs import RunningJob, unbroken

STEPS = 600
"""Steps that are compared."""


ON_CUDA = ("--provider", "cuda", "--share-gpus")
"""Flags for the stand-ins for NCCL and CUDA."""


@pytest.mark.parametrize(
    "provider", [(), pytest.param(ON_CUDA, marks=pytest.mark.slow)], ids=["cpu", "cuda"]
)
@pytest.mark.usefixtures("log")
def test_stages_come_and_go_and_a_rank_of_a_middle_one_is_lost(
    provider: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    family, data = tmp_path / "family", tmp_path / "data.npz"
    stages = ("--stages", "4", "--schedule", "1f1b", "--micro-batches", "4")
    optimizer = ("--optimizer", "adam", "--clip-norm", "1")
    write(
        chain(tmp_path), "--loss", "mse:y,t", *FLAGS, *stages, *optimizer,
        "--devices", "4", "-o", family,
    )  # fmt: skip
    draw = np.random.default_rng(0)
    x, t = (draw.standard_normal((320, 16)).astype(np.float32) for _ in "xt")
    np.savez(data, x=x, t=t)
    flags = ("--threads", 1, "--learning-rate", 0.001, "--shuffle", 3)
    own = ("--data", data, "--steps", 10**9, "--devices", 1, "--snapshot-every", 10)
    job = RunningJob("staged", family, *own, *flags, *provider)
    try:
        job.wait(lambda status: status.step > 20)
        client = job.client()
        switched = client.scale(4, wait=True)
        assert switched.moved_by == ("device" if provider else "memory")
        before = job.wait(lambda status: status.step > switched.step + 20)
        assert [rank.rank for rank in before.ranks] == [0, 1, 2, 3]
        os.kill(before.ranks[2].pid, 9)
        job.wait(lambda now: now.state == "training" and now.generation > before.generation)
        switched = client.scale(2, wait=True)
        job.wait(lambda now: now.step > max(switched.step + 20, STEPS))
        client.stop()
        status, _, err = job.end()
    finally:
        if job.process.poll() is None:
            job.kill()
    assert (status, err) == (0, "")
    texts = {event.kind: event.text for event in client.events()}
    assert "rank 2 of 4" in texts["lost"]
    expected = unbroken(family, data, STEPS, tmp_path / "log", *flags)
    np.testing.assert_allclose(job.losses()[:STEPS], expected, rtol=1e-4)
