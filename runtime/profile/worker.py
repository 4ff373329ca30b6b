"""Worker entry point for jobs that measure."""

from __future__ import annotations

from dataclasses import asdict

from tensoropt.runtime.launch.workers import Worker
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.profile.job import Measured, ProfileJob
from tensoropt.runtime.profile.work import run_profile
from tensoropt.runtime.support.errors import UserError

__all__ = ["WORKER"]


def _no_plan(job: ProfileJob) -> Plan:
    raise UserError("a job that measures has no plan, expected its number of ranks")


WORKER = Worker(
    ProfileJob.from_values,
    _no_plan,
    run_profile,
    lambda results: [asdict(result) for result in results],
    lambda values: [Measured(**value) for value in values],
    stoppable=True,
)
