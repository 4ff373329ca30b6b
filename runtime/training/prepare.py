"""Validation of a training job before its ranks start."""

from __future__ import annotations

import os
from pathlib import Path

from tensoropt.runtime.device.providers import check_provider
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.staged import check_staged
from tensoropt.runtime.support.errors import cause_of
from tensoropt.runtime.support.files import may_replace
from tensoropt.runtime.support.options import OptionError, roles_of
from tensoropt.runtime.support.places import INPUT, Role, check_places
from tensoropt.runtime.training.checkpoint import (
    Progress,
    check_checkpoint,
    checkpoints_in,
    find_checkpoint,
    path_of,
)
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.evaluation import check_evaluation
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.log import check_log
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_training"]


def check_training(job: TrainJob) -> Plan:
    """Check a job's provider, plan, data, checkpoint and output paths; returns the plan.

    Raises `UserError`.
    """
    _check_pairs(job)
    check_places([*roles_of(job), Role("plan", "plan", INPUT, job.plan)])
    check_provider(job)
    plan = TrainingPlan.from_plan(Plan.load(job.plan))
    if job.resume is None and plan.start == "checkpoint":
        raise OptionError(
            "{0}: has no weights of its own, as it is a plan of a family, "
            "expected {resume} {1} or a checkpoint",
            job.plan,
            Path(job.plan).parent / "initial.safetensors",
        )
    plan.plan.settle(job.dims)
    check_staged(plan.plan, cuda_graphs=job.cuda_graphs)
    if job.model is not None:
        plan.plan.check_model(Path(job.model))
    if job.data is not None:
        open_dataset(job.data, plan.plan.inputs, plan.batch, job.shuffle)
    check_evaluation(job, plan)
    progress = Progress()
    if job.resume is not None:
        progress = check_checkpoint(plan, find_checkpoint(Path(job.resume)))
    if job.loss_scale is not None and not plan.scales_loss:
        text = "{loss_scale}: {0} has none, expected --precision float16 in it"
        raise OptionError(text, job.plan)
    _check_writable(job, progress.step)
    return plan.plan


def _check_pairs(job: TrainJob) -> None:
    """Raise `OptionError` for an option without another that it needs."""
    if job.data is not None and not job.steps:
        raise OptionError("{steps}: expected a whole number from 1, got: 0")
    if job.min_learning_rate and job.schedule == "constant":
        raise OptionError("{min_learning_rate}: expected {schedule} cosine or linear too")
    if job.min_learning_rate > job.learning_rate:
        raise OptionError(
            "{min_learning_rate}: expected at most {learning_rate} {0:g}, got: {1:g}",
            job.learning_rate,
            job.min_learning_rate,
        )
    if job.export is not None and job.model is None:
        raise OptionError("{export}: expected {model} too")
    if job.model is not None and job.export is None:
        raise OptionError("{model}: expected {export} too")
    if job.checkpoint_every is not None and job.checkpoint is None:
        raise OptionError("{checkpoint_every}: expected {checkpoint} too")


def _check_writable(job: TrainJob, start: int) -> None:
    if job.log is not None:
        try:
            check_log(Path(job.log))
        except OSError as error:
            raise OptionError("{log} {0}: {1}", job.log, cause_of(error)) from None
    if job.checkpoint is not None:
        _check_folder(Path(job.checkpoint), start)
    if job.export is not None:
        path = Path(job.export)
        if not may_replace(path):
            raise OptionError("{export} {0}: expected a file in an existing folder", path)


def _check_folder(folder: Path, start: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError("{checkpoint} {0}: {1}", folder, cause_of(error)) from None
    if not os.access(folder, os.W_OK):
        raise OptionError("{checkpoint} {0}: expected a folder that can be written to", folder)
    later = [path for path in checkpoints_in(folder) if path > path_of(folder, start)]
    if later:
        raise OptionError(
            "{checkpoint} {0}: has {1}, of a later step than {2}, expected {resume} {0}, or "
            "another folder",
            folder,
            later[-1].name,
            start,
        )
