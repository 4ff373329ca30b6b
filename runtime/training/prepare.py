"""Validation of a training job before its ranks start."""

from __future__ import annotations

import os
from pathlib import Path

from tensoropt.runtime.device.providers import check_provider
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.files import may_replace
from tensoropt.runtime.training.checkpoint import (
    Progress,
    check_checkpoint,
    checkpoints_in,
    find_checkpoint,
    path_of,
)
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.log import check_log
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_training"]


def check_training(job: TrainJob) -> Plan:
    """Check a job's provider, plan, data, checkpoint and output paths; returns the plan.

    Raises `UserError`.
    """
    check_provider(job)
    plan = TrainingPlan.from_plan(Plan.load(job.plan))
    if job.resume is None and plan.start == "checkpoint":
        raise UserError(
            f"{job.plan}: has no weights of its own, as it is a plan of a family, "
            f"expected --resume {Path(job.plan).parent / 'initial.safetensors'} or a checkpoint"
        )
    if job.model is not None:
        plan.plan.check_model(Path(job.model))
    if job.data is not None:
        open_dataset(job.data, plan.plan.inputs, plan.batch, job.shuffle)
    progress = Progress()
    if job.resume is not None:
        progress = check_checkpoint(plan, find_checkpoint(Path(job.resume)))
    if job.loss_scale is not None and not plan.scales_loss:
        raise UserError(f"--loss-scale: {job.plan} has none, expected --precision float16 in it")
    _check_places(job, progress.step)
    return plan.plan


def _check_places(job: TrainJob, start: int) -> None:
    if job.log is not None:
        try:
            check_log(Path(job.log))
        except OSError as error:
            raise UserError(f"--log {job.log}: {cause_of(error)}") from None
    if job.checkpoint is not None:
        _check_folder(Path(job.checkpoint), start)
    if job.export is not None:
        path = Path(job.export)
        if not may_replace(path):
            raise UserError(f"--export {path}: expected a file in an existing folder")


def _check_folder(folder: Path, start: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--checkpoint {folder}: {cause_of(error)}") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"--checkpoint {folder}: expected a folder that can be written to")
    later = [path for path in checkpoints_in(folder) if path > path_of(folder, start)]
    if later:
        raise UserError(
            f"--checkpoint {folder}: holds {later[-1].name}, of a later step than {start}, "
            f"expected --resume {folder}, or another folder"
        )
