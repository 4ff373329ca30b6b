"""What others find in the files of a job when a coordinator dies at the worst moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensoropt.elastic.coordinator.handover import HandOver
from tensoropt.elastic.coordinator.job import Job
from tensoropt.elastic.coordinator.settings import JobSettings
from tensoropt.elastic.coordinator.stragglers import Stragglers
from tensoropt.elastic.jobs import JobFolder

STEPS = 5


class DoneRanks:
    """A generation whose ranks are done; it notes what is written when they leave."""

    number, is_over = 1, False
    plan = SimpleNamespace(name="2", devices=2)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def all_in(self, *phases: str) -> bool:
        return "done" in phases

    def send_all(self, message: dict[str, Any]) -> None:
        assert message == {"kind": "leave"}
        self.seen = steps_in_the_folder()

    def statuses(self) -> tuple[()]:
        return ()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job that has taken a few steps, in no time."""
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    with JobFolder.create("logged", {}) as folder:
        made = begun(folder, tmp_path / "log.jsonl")
        made.current = DoneRanks()
        for step in range(1, STEPS + 1):
            made.add_step(made.current, row(step))
        yield made
        made.end()


def begun(folder: JobFolder, log: Path) -> Job:
    settings = JobSettings("logged", "family", "data", 100, 2, training={"log": str(log)})
    engine = SimpleNamespace(address=lambda before: before or "somewhere")
    return Job(settings, SimpleNamespace(samples_per_step=8), engine, folder, lambda *_: None)


def row(step: int) -> dict[str, Any]:
    times = {"time_s": 0.001, "own_s": 0.001, "end_at": 0.0}
    facts = {"loss": 1.0, "learning_rate": 0.1, "loss_scale": None, "skipped": False}
    return {"step": step, **times, **facts}


def steps_in_the_folder() -> list[int]:
    with JobFolder.open("logged") as folder:
        return [row.step for row in folder.steps()]


def steps_in(log: Path) -> list[int]:
    return [json.loads(line)["step"] for line in log.read_text().splitlines()]


def test_a_job_that_is_said_to_be_over_has_all_its_steps(job: Job):
    job.finish("ended", "after step 5")
    assert steps_in_the_folder() == [*range(1, STEPS + 1)]


def test_ranks_leave_when_all_their_steps_are_written(job: Job):
    HandOver(job, Stragglers()).advance(job.current)
    assert job.current.seen == [*range(1, STEPS + 1)]


def test_the_next_coordinator_finds_no_step_in_the_folder_that_the_log_has_not(
    job: Job, tmp_path: Path
):
    job.folder.flush()  # as it does now and then
    assert steps_in(tmp_path / "log.jsonl") == steps_in_the_folder()
