"""A job that changes its devices while it runs, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from made_families import FLAGS, perceptron, write
from running_jobs import RunningJob, unbroken

from tensoropt.elastic.control import RefusedError
from tensoropt.runtime.support.errors import UserError

FLAGS_OF_RUN = ("--shuffle", 3, "--threads", 1)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a family for 1, 2 and 4 devices, and its data."""
    folder = tmp_path_factory.mktemp("subject")
    model = perceptron(folder)
    flags = ("--loss", "mse:y,t", *FLAGS, "--devices", "4", "--with-leanest", "--resolution", "0")
    write(model, *flags, "-o", folder / "family")
    draw = np.random.default_rng(0)
    x, t = draw.standard_normal((1100, 64)), draw.standard_normal((1100, 32))
    np.savez(folder / "data.npz", x=x.astype(np.float32), t=t.astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def endless(subject: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningJob]:
    """A job that starts on one device, and has no end."""
    before = os.environ.get("TENSOROPT_JOBS")
    os.environ["TENSOROPT_JOBS"] = str(tmp_path_factory.mktemp("jobs"))
    flags = ("--data", subject / "data.npz", "--steps", 10**9, "--devices", 1, *FLAGS_OF_RUN)
    flags += ("--snapshot-every", 20, "--log", subject / "log.jsonl")
    made = RunningJob("endless", subject / "family", *flags)
    try:
        yield made
    finally:
        made.kill()
        if before is None:
            del os.environ["TENSOROPT_JOBS"]
        else:
            os.environ["TENSOROPT_JOBS"] = before


@pytest.fixture
def job(endless: RunningJob) -> RunningJob:
    """The endless job while it trains: on what an earlier test left it, started again if ended."""
    if endless.process.poll() is not None:
        endless.start()
    endless.wait(lambda status: status.state == "training" and status.step > 5)
    return endless


@pytest.fixture
def job_on_one(job: RunningJob) -> RunningJob:
    """The same on one device."""
    if job.client().status().devices != 1:
        job.client().scale(1, wait=True)
    return job


def test_it_goes_to_more_devices_to_another_plan_and_back(job_on_one: RunningJob):
    client = job_on_one.client()
    seen = len(client.events())
    to_two = client.scale(2, wait=True)
    assert (to_two.from_devices, to_two.to_devices, to_two.method) == (1, 2, "live")
    assert to_two.moved_bytes > 0
    assert to_two.stall_s == pytest.approx(sum(to_two.phases_s.values()))
    assert to_two.stall_s < to_two.prepared_s
    assert client.scale(2, plan="2-lean", wait=True).to_devices == 2
    assert client.status().plan == "2-lean"
    assert client.scale(1, method="stop-resume", wait=True).method == "stop-resume"
    kinds = [event.kind for event in client.events(after=seen)]
    assert kinds.count("switched") == 3


def test_it_migrates_to_other_processes(job: RunningJob):
    client = job.client()
    before = {rank.pid for rank in client.status().ranks}
    to = client.status().ranks[0].device
    moved = client.migrate(wait=True)
    assert moved.from_devices == moved.to_devices
    after = client.status().ranks
    assert before.isdisjoint(rank.pid for rank in after)
    assert after[0].device != to


@pytest.mark.parametrize(
    ("devices", "plan", "line"),
    [
        (3, None, "expected one of 1, 2, 4, got: 3"),
        (0, None, "devices: expected at least 1, got: 0"),
        (64, None, "expected one of 1, 2, 4, got: 64"),
        (2, "2-leen", "no plan of that name .*got: '2-leen', did you mean '2-lean'"),
        (4, "2-lean", "plan 2-lean: expected one for 4 devices, got: 2"),
        (1, None, "runs with plan 1 already"),
    ],
)
def test_what_cannot_be_is_refused_and_the_job_goes_on(job_on_one: RunningJob, devices, plan, line):
    client = job_on_one.client()
    with pytest.raises((RefusedError, UserError), match=line):
        client.scale(devices, plan=plan, wait=True)
    step = client.status().step
    job_on_one.wait(lambda status: status.step > step)


def test_a_second_switch_waits_for_nobody(job_on_one: RunningJob):
    client = job_on_one.client()
    first = client.scale(2, wait=False)
    with pytest.raises(RefusedError, match="a switch to plan 2 is under way"):
        client.scale(4, wait=True)
    assert first.result().to_devices == 2


def test_a_killed_rank_costs_no_more_steps_than_are_between_snapshots(job: RunningJob):
    client = job.client()
    seen = job.wait(lambda status: (status.snapshot_step or 0) > 0 and status.state == "training")
    events = len(client.events())
    os.kill(seen.ranks[-1].pid, signal.SIGKILL)
    job.wait(lambda status: status.generation > seen.generation and status.state == "training")
    after = client.events(after=events)
    assert [event.kind for event in after if event.kind in ("lost", "recovered")] == [
        "lost",
        "recovered",
    ]
    assert "killed by signal 9" in after[0].text
    assert after[-1].facts["repeated_steps"] <= 20
    step = client.status().step
    job.wait(lambda status: status.step > step)


def test_a_generation_that_fails_while_it_prepares_leaves_the_job_as_it_was(job_on_one: RunningJob):
    client = job_on_one.client()
    generation = client.status().generation
    saved = Path(os.environ["TENSOROPT_JOBS"], job_on_one.name, "coordinator.json")
    before = json.loads(saved.read_text())["generations"]
    scaling = client.scale(4, wait=False)
    end = time.monotonic() + 60
    while (found := json.loads(saved.read_text())["generations"]).keys() == before.keys():
        assert time.monotonic() < end
    (begun,) = found.keys() - before.keys()
    os.kill(found[begun]["host"]["pid"], signal.SIGKILL)
    with pytest.raises(
        RefusedError, match=r"generation \d+ \(4 devices\) failed: its launcher was"
    ):
        scaling.result()
    assert client.status().generation == generation
    assert client.status().state == "training"


def test_a_coordinator_that_died_finds_its_ranks(job: RunningJob, subject: Path):
    before = job.client().status()
    job.process.kill()
    job.process.wait()  # until then it may write
    steps = Path(os.environ["TENSOROPT_JOBS"], job.name, "steps.jsonl")
    written = steps.read_text().splitlines(keepends=True)
    own = [row for row in written if json.loads(row)["generation"] == before.generation]
    kept = len(written) - len(own[-3:])  # its ranks repeat no step of earlier generations
    steps.write_text("".join(written[:kept]))  # as if it had died a little earlier
    job.start()
    after = job.wait(lambda status: len(status.ranks) > 0 and status.step > before.step)
    assert after.generation == before.generation
    assert {rank.pid for rank in after.ranks} == {rank.pid for rank in before.ranks}


def test_the_same_command_while_it_runs_is_one_line(job: RunningJob):
    other = RunningJob.__new__(RunningJob)
    other.name, other._command = job.name, job._command
    other.start()
    status, _, err = other.end()
    assert (status, err) == (1, "error: job 'endless': runs already, expected another --name\n")


def test_it_stops_in_order_and_goes_on_where_it_was(job: RunningJob, subject: Path, tmp_path: Path):
    job.process.send_signal(signal.SIGINT)
    status, out, err = job.end()
    assert (status, err) == (130, "")
    assert "stopped after step" in out
    step = job.client().status().step
    losses = job.losses()
    assert len(losses) == step
    log = [json.loads(line) for line in (subject / "log.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in log] == losses
    expected = unbroken(
        subject / "family", subject / "data.npz", min(step, 300), tmp_path / "log", *FLAGS_OF_RUN
    )
    np.testing.assert_allclose(losses[: len(expected)], expected, rtol=1e-4)
    job.start()
    again = job.wait(lambda status: status.state == "training" and status.step > step)
    assert again.generation > 0
    assert len(job.losses()) >= step


def test_other_data_of_the_same_name_are_refused(subject: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    data = Path(shutil.copy(subject / "data.npz", tmp_path / "data.npz"))
    flags = ("--data", data, "--steps", 10**9, "--devices", 1, "--threads", 1)
    job = RunningJob("held", subject / "family", *flags)
    try:
        job.wait(lambda status: status.state == "training" and status.step > 0)
        job.process.send_signal(signal.SIGTERM)
        assert job.end()[0] == 143
        with np.load(subject / "data.npz") as whole:
            np.savez(data, **{name: array[:900] for name, array in whole.items()})
        job.start()
        status, _, err = job.end()
        assert status == 1
        assert "900 samples in data.npz, expected 1100 samples in data.npz as when the job" in err
    finally:
        job.kill()


def test_nothing_is_left(job: RunningJob):
    job.client().stop()
    job.end()
    end = time.monotonic() + 10
    while (left := _of_jobs()) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == []


def _of_jobs() -> list[int]:
    """Return the processes that have the module's folder of jobs in their environment."""
    mark = f"TENSOROPT_JOBS={os.environ['TENSOROPT_JOBS']}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
