"""The identity of a job: all of its ranks share it, and ranks of another job have another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tensoropt.runtime.launch.identity import identity
from tensoropt.runtime.training.job import TrainJob


def test_ranks_may_differ_in_their_own_settings(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text("{}")
    job = TrainJob(str(tmp_path / "a"), steps=1)
    same = replace(job, plan=str(tmp_path / "b"), threads=3, stall_s=1.0)
    assert identity(same) == identity(job)


def test_another_plan_or_command_is_another_job(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text(f'{{"name": "{name}"}}')
    job = TrainJob(str(tmp_path / "a"), steps=1)
    others = [replace(job, plan=str(tmp_path / "b")), replace(job, steps=2)]
    assert len({identity(one) for one in (job, *others)}) == 3
