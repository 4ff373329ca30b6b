"""Running plans and checking them against the one-device run: the Python interface.

results = check_plans(["plan-a", "plan-b"], "model.onnx", seed=1)
assert all(result.passed for result in results)
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensoropt.runtime.errors import UserError, one_line
from tensoropt.runtime.job import CheckResult, Job
from tensoropt.runtime.launcher import launch, ranks_present
from tensoropt.runtime.work import check_job, run_job

__all__ = ["check_plan", "check_plans", "run"]


def check_plan(
    plan_dir: Path | str, model_path: Path | str, *, timeout_s: float | None = None, **options: Any
) -> CheckResult:
    """Run one plan and compare it with the one-device run of its model; see `check_plans`."""
    return check_plans([plan_dir], model_path, timeout_s=timeout_s, **options)[0]


def check_plans(
    plan_dirs: Sequence[Path | str],
    model_path: Path | str,
    *,
    timeout_s: float | None = None,
    **options: Any,
) -> list[CheckResult]:
    """Run plans of equal rank count in one launch and compare each with the one-device run.

    ``options`` are the fields of `Job`: inputs, seed, int_range, dims, runs, rtol, atol, threads.
    Raises `UserError` where the job cannot start or a rank fails while running; a plan whose
    sessions cannot be made, or that differs, is a result that did not pass.
    """
    job = Job(tuple(map(str, plan_dirs)), model=str(model_path), **options)
    return launch(job, check_job(job)[0].ranks, timeout_s)


def run(job: Job, timeout_s: float | None = None) -> list[CheckResult]:
    """Run the job in the ranks that mpiexec or srun started, or else in new ones.

    In ranks already present, only rank 0 gets whole results. Raises `UserError`.
    """
    present = ranks_present()
    if present is not None:
        return _run_here(job, *present, timeout_s)
    return launch(job, check_job(job)[0].ranks, timeout_s)


def _run_here(job: Job, rank: int, ranks: int, timeout_s: float | None) -> list[CheckResult]:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    # One rank checks for all: the others would read every file once more.
    error = comm.bcast(_why_not(job, ranks) if rank == 0 else None)
    if error is not None:
        raise UserError(error)
    timer = _end_after(timeout_s, rank)
    try:
        results = run_job(job, comm)
    except BaseException as failure:
        _say(f"rank {rank} of {ranks}: {one_line(failure)}")
        comm.Abort(1)
        raise
    if timer is not None:
        timer.cancel()
    return results


def _why_not(job: Job, ranks: int) -> str | None:
    try:
        plan = check_job(job)[0]
    except UserError as error:
        return str(error)
    if plan.ranks != ranks:
        return (
            f"{plan.folder}: needs {plan.ranks} ranks, "
            f"expected mpiexec -n {plan.ranks}, got: {ranks} ranks"
        )
    return None


def _end_after(timeout_s: float | None, rank: int) -> threading.Timer | None:
    """End this process when the time has passed; mpiexec then ends the other ranks."""
    if timeout_s is None:
        return None

    def end() -> None:
        if rank == 0:
            _say(f"no result within --timeout {timeout_s:g} s")
        os._exit(1)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    return timer


def _say(text: str) -> None:
    """Print an error even on the ranks whose output is otherwise dropped."""
    stream = sys.__stderr__
    if stream is not None:
        print(f"error: {text}", file=stream, flush=True)
