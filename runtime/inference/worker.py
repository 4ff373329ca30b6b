"""Worker entry point of jobs that run plans."""

from __future__ import annotations

from dataclasses import asdict

from tensoropt.runtime.check.results import results_from
from tensoropt.runtime.inference.work import check_job, run_job
from tensoropt.runtime.launch.workers import Worker
from tensoropt.runtime.support.job import Job

__all__ = ["WORKER"]

WORKER = Worker(
    Job.from_values,
    lambda job: check_job(job)[0],
    run_job,
    lambda results: [asdict(result) for result in results],
    results_from,
)
