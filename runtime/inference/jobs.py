"""Running plans, and checking them against the one-device run, from Python.

results = check_plans(["plan-a", "plan-b"], "model.onnx", seed=1)
assert all(result.passed for result in results)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensoropt.runtime.check.results import CheckResult, results_from
from tensoropt.runtime.inference.work import check_job
from tensoropt.runtime.launch.launcher import launch
from tensoropt.runtime.launch.start import start
from tensoropt.runtime.support.job import Job

__all__ = ["check_plan", "check_plans", "run"]


def check_plan(plan_dir: Path | str, model_path: Path | str, **options: Any) -> CheckResult:
    """Run one plan and compare it with the one-device run of its model; see `check_plans`."""
    return check_plans([plan_dir], model_path, **options)[0]


def check_plans(
    plan_dirs: Sequence[Path | str],
    model_path: Path | str,
    **options: Any,
) -> list[CheckResult]:
    """Run plans of equal rank count in one launch and compare each with the one-device run.

    ``options`` are the fields of `Job`.
    Raises `UserError` if the job cannot start or a rank fails during a run. If a plan's sessions
    cannot be created, or its outputs differ, its result has not passed.
    """
    job = Job(tuple(map(str, plan_dirs)), model=str(model_path), **options)
    return results_from(launch(job, check_job(job)[0].ranks))


def run(job: Job) -> list[CheckResult]:
    """Run the job in the ranks of another launcher if present, or else in new ranks.

    In another launcher's ranks, only rank 0 gets whole results. Raises `UserError`.
    """
    results: list[CheckResult] = start(job)
    return results
