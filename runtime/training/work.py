"""What every rank does in training: make its sessions, take steps, write checkpoints."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.device.provider import MemoryMeter
from tensoropt.runtime.device.providers import provider_of
from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.ranks import largest, made_on_all, share_of_cores, wait_idle
from tensoropt.runtime.training.checkpoint import (
    Progress,
    check_checkpoint,
    find_checkpoint,
    keep_latest,
    path_of,
    write_checkpoint,
)
from tensoropt.runtime.training.job import TrainJob, TrainResult
from tensoropt.runtime.training.lock import alone_in
from tensoropt.runtime.training.log import Log
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import ROLES, TrainingStep
from tensoropt.runtime.training.trainer import StoppedError, Trainer

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["run_training"]


def run_training(job: TrainJob, comm: MPI.Comm, link: LauncherLink) -> TrainResult:
    """Train on the ranks of ``comm``; the result is whole on rank 0 only.

    A loss or gradient that is not finite ends training with a result that says so. A failure of
    one rank raises `UserError`: the others then wait for it, so the job cannot go on.
    """
    plan = TrainingPlan.of(Plan.read(job.plan))
    resume = None if job.resume is None else find_checkpoint(Path(job.resume))
    progress = Progress() if resume is None else check_checkpoint(plan, resume)
    import onnx  # noqa: F401  # the code of both is no part of what training takes
    import onnxruntime  # noqa: F401

    provider = provider_of(job, comm)
    memory = provider.measure()
    state = Held(plan, comm.rank, provider)
    threads = job.threads or share_of_cores(comm)
    place = job.checkpoint if comm.rank == 0 else None
    with alone_in(place), tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        step, graphs, error = _open(job, state, threads, Path(folder), comm)
        if step is None:
            return _result(job, plan, progress, error=error)
        state.load(resume)
        trainer = Trainer(job, step, progress, threads, comm)
        return _trained(job, trainer, memory, link, comm, graphs)


def _open(
    job: TrainJob, state: Held, threads: int, folder: Path, comm: MPI.Comm
) -> tuple[TrainingStep | None, str | None, str | None]:
    """Return the rank's step, what became of CUDA graphs if they were asked for, and an error.

    All ranks go without where one has to; the graph without collectives is then tried alone.
    """
    text = "captured" if job.cuda_graphs else None
    for captured in (ROLES, ROLES[1:], ()) if job.cuda_graphs else ((),):
        step, error = made_on_all(
            comm, partial(TrainingStep, state.plan, state, threads, folder, captured)
        )
        if step is not None:
            if captured:
                step.capture()
            return step, text, None
        kept = "the update captured" if captured == ROLES else "not captured"
        text = f"{kept}: {error}"
    return None, None, error


def _trained(
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
    is_complete = error is None and not trainer.stop_asked
    return _result(
        job,
        plan,
        trainer.progress,
        steps=trainer.progress.step - start.step,
        samples=trainer.progress.samples - start.samples,
        skipped=trainer.skipped,
        first_loss=log.first,
        last_loss=log.last,
        step_time_s=log.median_s,
        # Before a checkpoint is written, whose pages are the system's.
        **_measured(trainer, memory, comm),
        cuda_graphs=graphs,
        checkpoint=_checkpoint(job, trainer, comm),
        export=_export(job, trainer, comm) if is_complete else None,
        interrupted=trainer.stop_asked,
        error=error,
    )


def _measured(trainer: Trainer, memory: MemoryMeter, comm: MPI.Comm) -> dict[str, Any]:
    """Return what was measured beside times, of the rank that has most, and the prediction."""
    predicted = trainer.plan.plan.document["predicted"]
    return {
        "peak_bytes": largest(comm, memory.bytes()),
        "predicted_peak_bytes": predicted["memory_bytes"],
        "used_bytes": largest(comm, trainer.held.provider.used_bytes()),
        "nodes_on_cpu": largest(comm, trainer.nodes_on_cpu()),
        "held_bytes": _held_bytes(trainer, comm),
        "predicted_bytes": dict(predicted.get("static_parts", {})),
        "predicted_time_s": predicted["time_s"],
    }


def _take_steps(
    job: TrainJob, trainer: Trainer, log: Log, link: LauncherLink, comm: MPI.Comm
) -> str | None:
    """Take all steps, or as many as can be; returns what stopped them, if not a person."""
    last = trainer.progress.step + job.steps
    try:
        while trainer.progress.step < last and not trainer.stop_asked:
            log.add(trainer.step(stop=link.stop_asked()))
            if _is_due(job, trainer.progress.step):
                _checkpoint(job, trainer, comm)
    except StoppedError as stopped:
        _checkpoint(job, trainer, comm)  # before more memory is asked for
        return f"{stopped}, first not finite: {trainer.first_not_finite()}"
    return None


def _result(job: TrainJob, plan: TrainingPlan, progress: Progress, **facts: Any) -> TrainResult:
    counts = {"steps": 0, "samples": 0}
    facts = {**counts, "step": progress.step, "provider": job.provider, **facts}
    return TrainResult(job.plan, plan.plan.ranks, list(plan.plan.mesh), **facts)


def _is_due(job: TrainJob, step: int) -> bool:
    return job.checkpoint_every is not None and step % job.checkpoint_every == 0


def _checkpoint(job: TrainJob, trainer: Trainer, comm: MPI.Comm) -> str | None:
    """Write a checkpoint of where training is, unless it is there; returns its path."""
    if job.checkpoint is None:
        return None
    folder = Path(job.checkpoint)
    path = path_of(folder, trainer.progress.step)
    if trainer.written != path:
        write_checkpoint(path, trainer.held, trainer.progress, comm)
        trainer.written = path
        if comm.rank == 0:
            keep_latest(folder, job.keep)
        wait_idle(comm)
    return str(path)


def _export(job: TrainJob, trainer: Trainer, comm: MPI.Comm) -> str | None:
    if job.export is None or job.model is None:
        return None
    path = Path(job.export)
    weights = path.with_name(f".{path.name}.safetensors")
    try:
        write_checkpoint(weights, trainer.held, trainer.progress, comm, moments=False)
        if comm.rank == 0:
            from tensoropt.runtime.training.export import export_model

            export_model(Path(job.model), weights, path)
        wait_idle(comm)
    finally:
        if comm.rank == 0:
            weights.unlink(missing_ok=True)
    return str(path)


def _held_bytes(trainer: Trainer, comm: MPI.Comm) -> dict[str, int]:
    """Return what the rank that holds most of each kind holds."""
    mine = trainer.held.bytes_by_kind()
    mine["constants_bytes"] = trainer.constant_bytes()
    return {kind: largest(comm, size) or 0 for kind, size in mine.items()}
