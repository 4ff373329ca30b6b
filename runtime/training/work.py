"""The work of each rank in training: create sessions, take steps, write checkpoints."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.device.provider import MemoryMeter
from tensoropt.runtime.device.providers import provider_of
from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.ranks import share_of_cores
from tensoropt.runtime.training.checkpoint import Progress, check_checkpoint, find_checkpoint
from tensoropt.runtime.training.evaluation import is_evaluated
from tensoropt.runtime.training.integrity import check_tensors
from tensoropt.runtime.training.job import TrainJob, TrainResult
from tensoropt.runtime.training.lock import lock_folder
from tensoropt.runtime.training.log import Log
from tensoropt.runtime.training.opening import open_step
from tensoropt.runtime.training.outcome import (
    export_trained,
    is_due,
    measure,
    result_of,
    save_checkpoint,
)
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.trainer import StoppedError, Trainer

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["run_training"]


def run_training(job: TrainJob, comm: MPI.Comm, link: LauncherLink) -> TrainResult:
    """Train on the ranks of ``comm``; the result is complete only on rank 0.

    If the loss or a gradient is not finite, training ends and the result has an error. A failure of
    one rank raises `UserError`; the job must then end, as the other ranks wait for it.
    """
    plan = TrainingPlan.from_plan(Plan.read(job.plan))
    resume = None if job.resume is None else find_checkpoint(Path(job.resume))
    progress = Progress()
    if resume is not None:
        check_tensors(resume, comm)
        progress = check_checkpoint(plan, resume)
    provider, status = provider_of(job, comm), link.of_rank(comm.rank)
    memory = provider.measure()
    state = Held(plan, comm.rank, provider)
    threads = job.threads or share_of_cores(comm)
    place = job.checkpoint if comm.rank == 0 else None
    with lock_folder(place), tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        status.show(f"{plan.folder}: loading the graphs of {comm.size} ranks")
        step, graphs, error = open_step(job, state, threads, Path(folder), comm)
        if step is None:
            return result_of(job, plan, progress, error=error)
        status.show(f"reading {resume or 'the initial weights'}")
        state.load(resume)
        trainer = Trainer(job, step, progress, threads, comm)
        return _train(job, trainer, memory, link, comm, graphs)


def _train(
    job: TrainJob,
    trainer: Trainer,
    memory: MemoryMeter,
    link: LauncherLink,
    comm: MPI.Comm,
    graphs: str | None,
) -> TrainResult:
    start, plan = trainer.progress, trainer.plan
    log = Log(job, plan, start.step, link if comm.rank == 0 else None)
    try:
        error = _take_steps(job, trainer, log, link, comm)
    finally:
        log.close()
    # Before a checkpoint is written, as its pages in the page cache would count.
    measured = measure(trainer, memory, comm)
    checkpoint, export = _save(job, trainer, comm, link), None
    if error is None and not trainer.asked:
        if job.export is not None:
            link.of_rank(comm.rank).show(f"writing {job.export}")
        export = export_trained(job, trainer, comm)
    return result_of(
        job,
        plan,
        trainer.progress,
        steps=trainer.progress.step - start.step,
        samples=trainer.progress.samples - start.samples,
        skipped=trainer.skipped,
        first_loss=log.first,
        last_loss=log.last,
        evaluation_loss=log.evaluated,
        step_time_s=log.median_s,
        **measured,
        cuda_graphs=graphs,
        checkpoint=checkpoint,
        export=export,
        stop_signal=trainer.asked,
        error=error,
    )


def _take_steps(
    job: TrainJob, trainer: Trainer, log: Log, link: LauncherLink, comm: MPI.Comm
) -> str | None:
    """Take steps to the end or a requested stop; returns an error that ended them, if any."""
    last = trainer.progress.step + job.steps
    try:
        while trainer.progress.step < last and not trainer.asked:
            facts = trainer.step(ask=link.stop_signal())
            if is_evaluated(job, facts.step, last):
                facts = replace(facts, evaluation_loss=trainer.evaluate())
            log.add(facts)
            if is_due(job, trainer.progress.step):
                _save(job, trainer, comm, link)
    except StoppedError as stopped:
        _save(job, trainer, comm, link)  # before the diagnosis, which allocates more memory
        return f"{stopped}, first not finite: {trainer.first_not_finite()}"
    return None


def _save(job: TrainJob, trainer: Trainer, comm: MPI.Comm, link: LauncherLink) -> str | None:
    """Write a checkpoint if the job has a folder for it, and show that; returns its path."""
    if job.checkpoint is not None:
        link.of_rank(comm.rank).show(f"step {trainer.progress.step}: writing {job.checkpoint}")
    return save_checkpoint(job, trainer, comm)
