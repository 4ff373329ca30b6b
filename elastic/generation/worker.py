"""Worker entry point for generations."""

from __future__ import annotations

from dataclasses import asdict

from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.generation.work import run_generation
from tensoropt.runtime.device.providers import check_provider
from tensoropt.runtime.launch.workers import Worker
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.job import TrainResult
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["WORKER"]


def _check(job: GenerationJob) -> Plan:
    """Return the plan, after checking everything that may have changed since the job began.

    plan.json is not validated again: it was when the family was written, and validation would take
    a quarter of the preparation time.
    """
    check_provider(job)
    plan = TrainingPlan.from_plan(Plan.read(job.plan))
    plan.plan.check_files()
    open_dataset(str(job.data), plan.plan.inputs, plan.batch, job.shuffle)
    return plan.plan


WORKER = Worker(
    lambda values: GenerationJob(**values),
    _check,
    run_generation,
    asdict,
    lambda values: TrainResult(**values),
)
"""It ignores Ctrl-C: the coordinator decides when it ends."""
