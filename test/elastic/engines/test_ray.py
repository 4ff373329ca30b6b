"""Jobs on a real Ray cluster, whose nodes are on one machine but share no state.

``make ray-check`` runs all of it, `make test` the first one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families_of_sixths import WIDTHS, sixths
from ray_cluster import Nodes, cluster
from running_jobs import RunningJob, unbroken
from waiting import wait_until

from tensoropt.elastic.api.client import Client
from tensoropt.elastic.control import Event, JobStatus, RefusedError
from tensoropt.elastic.generation.parts import pieces_to_take
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.training.plan import TrainingPlan

TRAINING = ("--shuffle", 3, "--threads", 1)
CHECK = pytest.mark.skipif("TENSOROPT_RAY_CHECK" not in os.environ, reason="make ray-check")


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a family for 1, 2 and 3 devices, which split the state, and its data."""
    folder = tmp_path_factory.mktemp("subject")
    sixths(folder)
    draw = np.random.default_rng(0)
    x, t = (draw.standard_normal((500, size)).astype(np.float32) for size in WIDTHS[::2])
    np.savez(folder / "data.npz", x=x, t=t)
    return folder


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster of two nodes, the first one that of the coordinator."""
    with cluster(num_cpus=1) as made:
        made.add()
        yield made


@pytest.fixture
def jobs(nodes: Nodes, subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts jobs on the cluster; none of them stays."""
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    started: list[RunningJob] = []

    def start(name: str, *flags: object) -> RunningJob:
        flags = ("--data", subject / "data.npz", "--steps", 10**9, *TRAINING, *flags)
        ray = ("--engine", "ray", "--ray-address", nodes.address)
        started.append(RunningJob(name, subject / "family", *flags, *ray))
        return started[-1]

    yield start
    for job in started:
        job.process.kill()
        job.process.communicate()


def trains(status: JobStatus) -> bool:
    return status.state == "training" and status.step > 0


def nodes_of(status: JobStatus) -> list[str]:
    return [rank.device.partition("/")[0] for rank in status.ranks]


def foreign_bytes(folder: Path, before: str, after: str, old: list[str], new: list[str]) -> int:
    """Return what ranks on nodes ``new`` need of a state that no rank of theirs had in ``old``."""
    held, wanted = (TrainingPlan.from_plan(Plan.read(folder / name)) for name in (before, after))
    sizes = {state.name: dtype_of(state.tensor.dtype).itemsize for state in held.state}
    total = 0
    for rank, node in enumerate(new):
        distances = [float(its != node) for its in old]
        for name, piece in pieces_to_take(held, wanted, rank, distances):
            count = np.prod([part.stop - part.start for part in piece.mine], dtype=int)
            total += int(sizes[name] * count * distances[piece.holder])
    return total


def the(kind: str, events: list[Event]) -> Event:
    found = [event for event in events if event.kind == kind]
    assert len(found) == 1, [(event.kind, event.text) for event in events]
    return found[0]


def test_a_job_goes_to_another_node_and_overcomes_the_loss_of_one(
    nodes: Nodes, subject: Path, jobs: Any, tmp_path: Path
):
    job = jobs("cluster", "--devices", 2, "--snapshot-every", 20)
    nodes.add()
    before = nodes_of(job.wait(trains))
    client = job.client()
    switch = client.scale(3, wait=True)
    status = job.wait(lambda status: (status.snapshot_step or 0) > switch.step + 40)
    after = nodes_of(status)
    assert len(set(after)) == 3
    carried = the("switched", client.events()).facts["carried_bytes"]
    assert carried == foreign_bytes(subject / "family", "2", "3", before, after)
    assert 0 < carried < switch.moved_bytes

    nodes.remove(after[2])
    recovered = job.wait(lambda s: s.generation > status.generation and s.state == "training")
    assert set(nodes_of(recovered)) == set(after[:2])
    job.wait(lambda status: status.step > recovered.step + 20)
    events = client.events()
    assert f"{after[2]} is gone: rank 2 of 3 was killed with it" in the("lost", events).text
    assert "from a snapshot" in the("recovered", events).text
    assert the("recovered", events).facts["repeated_steps"] <= 40
    assert the("recovered", events).facts["carried_bytes"] > 0

    client.stop(wait=True)
    assert job.end()[::2] == (0, "")
    losses = job.losses()
    assert len(losses) == client.status().step
    data = subject / "data.npz"
    expected = unbroken(subject / "family", data, len(losses), tmp_path / "log", *TRAINING)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


@CHECK
def test_it_moves_to_the_devices_that_are_named(nodes: Nodes, jobs: Any):
    nodes.at_least(2)
    client, status = ready(jobs("moved", "--devices", 1))
    assert nodes_of(status) == [nodes.first]
    other = f"{nodes.others()[1]}/cpu:0"
    client.migrate([other], wait=True)
    assert [rank.device for rank in client.status().ranks] == [other]
    assert the("switched", client.events()).facts["carried_bytes"] > 0
    with pytest.raises(RefusedError, match=r"devices node-0/cpu:0: expected 1 of node-"):
        client.migrate(["node-0/cpu:0"], wait=True)
    assert client.scale(2, method="stop-resume", wait=True).to_devices == 2


@CHECK
def test_a_killed_rank_is_no_lost_node(nodes: Nodes, jobs: Any):
    nodes.at_least(1)
    job = jobs("killed", "--devices", 2, "--snapshot-every", 20)
    client, _ = ready(job)
    status = job.wait(lambda status: (status.snapshot_step or 0) > 0)
    os.kill(status.ranks[1].pid, signal.SIGKILL)
    after = job.wait(lambda s: s.generation > status.generation and s.state == "training")
    assert "rank 1 of 2 was killed by signal 9" in the("lost", client.events()).text
    assert sorted(nodes_of(after)) == sorted(nodes_of(status))
    assert "error: rank 1 of 2 ended" in client.output()


@CHECK
def test_a_killed_actor_takes_its_rank_with_it(nodes: Nodes, jobs: Any):
    nodes.at_least(1)
    job = jobs("actor", "--devices", 2, "--snapshot-every", 20)
    client, _ = ready(job)
    status = job.wait(lambda status: (status.snapshot_step or 0) > 0)
    os.kill(parent_of(status.ranks[1].pid), signal.SIGKILL)
    job.wait(lambda s: s.generation > status.generation and s.state == "training")
    assert "rank 1 of 2 was killed on node-" in the("lost", client.events()).text
    assert not any(Path(f"/proc/{rank.pid}").exists() for rank in status.ranks)


@CHECK
def test_a_node_lost_while_ranks_get_ready_there_leaves_the_job_as_it_was(nodes: Nodes, jobs: Any):
    nodes.at_least(1)
    job = jobs("ready", "--devices", 2)
    client, before = ready(job)
    third = nodes.add()
    switch = client.scale(3, wait=False)
    nodes.remove(third)
    with pytest.raises(RefusedError, match=f"{third} is gone"):
        switch.result()
    after = client.status()
    assert (after.state, after.generation) == ("training", before.generation)
    job.wait(lambda status: status.step > after.step)


@CHECK
def test_all_end_with_the_coordinator_and_the_same_command_goes_on(nodes: Nodes, jobs: Any):
    nodes.at_least(1)
    job = jobs("again", "--devices", 2, "--checkpoint-every", 50)
    _, status = ready(job)
    job.wait(lambda status: status.step > 100)
    job.process.kill()
    wait_until_gone([rank.pid for rank in status.ranks])
    job.start()
    again = job.wait(lambda status: status.state == "training" and status.step > 120)
    assert again.generation > status.generation
    started = [event.text for event in job.client().events() if event.kind == "started"]
    assert "its ranks are gone" in started[-1]
    job.losses()


@CHECK
def test_what_there_is_not_enough_of_is_one_line(nodes: Nodes, jobs: Any):
    nodes.at_least(1)
    many = jobs("many", "--devices", 3, "--threads", 2)
    assert many.end() == (1, "", "error: --devices 3: expected at most 0, the number available\n")
    nodes.at_least(2)
    ready(jobs("first", "--devices", 2))
    status, _, line = jobs("second", "--devices", 2).end()
    assert status == 1
    assert line.startswith("error: device node-")
    assert "expected a free one, got: one that other jobs of the Ray cluster have had" in line


@CHECK
def test_generations_share_a_gpu_and_ranks_of_one_do_not(nodes: Nodes):
    name = nodes.add(num_cpus=0, num_gpus=2)
    script = f"""if True:
        import ray
        from tensoropt.elastic.engines.on_ray.cluster import connect
        from tensoropt.elastic.engines.on_ray.devices import Devices
        from tensoropt.elastic.engines.on_ray.host import runner_in
        connect({nodes.address!r})
        devices = Devices("cuda", None)
        names = devices.names()
        assert names == ["{name}/gpu:0", "{name}/gpu:1"], names
        found = []
        for generation in range(2):
            actors = [runner_in(group, 0.25) for group in devices.take(names)]
            found.append([ray.get(actor.gpus.remote()) for actor in actors])
        print(found)
    """
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert made.stdout in ("[['0', '1'], ['0', '1']]\n", "[['1', '0'], ['1', '0']]\n"), made.stderr
    nodes.remove(name)


def ready(job: RunningJob) -> tuple[Client, JobStatus]:
    status = job.wait(trains)
    return job.client(), status


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until_gone(pids: list[int]) -> None:
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids),
        20,
        f"{pids} are still there",
    )
