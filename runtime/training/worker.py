"""Entry point of training jobs for the launcher."""

from __future__ import annotations

from dataclasses import asdict

from tensoropt.runtime.launch.workers import Worker
from tensoropt.runtime.training.job import TrainJob, TrainResult
from tensoropt.runtime.training.prepare import check_training
from tensoropt.runtime.training.work import run_training

__all__ = ["WORKER"]

WORKER = Worker(
    lambda values: TrainJob(**values),
    check_training,
    run_training,
    asdict,
    lambda values: TrainResult(**values),
    stoppable=True,
)
