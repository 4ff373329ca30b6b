"""The kinds of jobs, and how each is checked, run on a rank, and handed from process to process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tensoropt.runtime.errors import UserError
from tensoropt.runtime.job import Job, results_from
from tensoropt.runtime.plan import Plan

__all__ = ["Worker", "worker_of"]


@dataclass(frozen=True)
class Worker:
    """One kind of job; a job and its results are dataclasses that go through JSON as ``values``.

    ``check`` raises `UserError` for all that can be found before ranks start, and returns a plan
    that says how many. ``run`` takes the job, the communicator and the `Link`. The first Ctrl-C
    asks a ``stoppable`` job to end in order.
    """

    job_from: Callable[[dict[str, Any]], Any]
    check: Callable[[Any], Plan]
    run: Callable[[Any, Any, Any], Any]
    to_values: Callable[[Any], Any]
    from_values: Callable[[Any], Any]
    stoppable: bool = False


def worker_of(kind: str) -> Worker:
    """Return how jobs of a kind are done, importing what that takes."""
    return {"run": _running, "train": _training, "profile": _profiling}[kind]()


def _running() -> Worker:
    from tensoropt.runtime.work import check_job, run_job

    return Worker(
        Job.from_values,
        lambda job: check_job(job)[0],
        lambda job, comm, link: run_job(job, comm),
        lambda results: [asdict(result) for result in results],
        results_from,
    )


def _training() -> Worker:
    from tensoropt.runtime.training.job import TrainJob, TrainResult
    from tensoropt.runtime.training.prepare import check_training
    from tensoropt.runtime.training.work import run_training

    return Worker(
        lambda values: TrainJob(**values),
        check_training,
        run_training,
        asdict,
        lambda values: TrainResult(**values),
        stoppable=True,
    )


def _profiling() -> Worker:
    from tensoropt.runtime.profile.job import Measured, ProfileJob
    from tensoropt.runtime.profile.work import run_profile

    return Worker(
        ProfileJob.from_values,
        _no_plan,
        run_profile,
        lambda results: [asdict(result) for result in results],
        lambda values: [Measured(**value) for value in values],
        stoppable=True,
    )


def _no_plan(job: Any) -> Plan:
    raise UserError("a job that measures has no plan, expected it to say how many ranks it takes")
