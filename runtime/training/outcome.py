"""Outputs of training: checkpoints, the trained model, and the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.device.provider import MemoryMeter
from tensoropt.runtime.session.ranks import largest, wait_idle
from tensoropt.runtime.training.checkpoint import Progress, keep_latest, path_of, write_checkpoint
from tensoropt.runtime.training.job import TrainJob, TrainResult
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.trainer import Trainer

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["export_trained", "is_due", "measure", "result_of", "save_checkpoint"]


def measure(trainer: Trainer, memory: MemoryMeter, comm: MPI.Comm) -> dict[str, Any]:
    """Return measured figures except times, of the rank with the maximum, and predictions.

    With stages, the parts of memory are measured on the stage that the prediction is for.
    """
    plan = trainer.plan.plan
    predicted = plan.document["predicted"]
    peak_bytes = memory.bytes()  # first: to count the constants takes memory
    own = {**trainer.held.bytes_by_kind(), "constants_bytes": trainer.constant_bytes()}
    if trainer.plan.stage(comm.rank) != trainer.plan.fullest:
        own = dict.fromkeys(own, 0)
    return {
        "peak_bytes": largest(comm, peak_bytes),
        "predicted_peak_bytes": plan.process_bytes,
        "used_bytes": largest(comm, trainer.held.provider.used_bytes()),
        "nodes_on_cpu": largest(comm, trainer.nodes_on_cpu()),
        "held_bytes": {kind: largest(comm, size) or 0 for kind, size in own.items()},
        "predicted_bytes": dict(predicted.get("static_parts", {})),
        "predicted_time_s": predicted["time_s"],
        "expected_error": predicted["expected_error"],
    }


def result_of(job: TrainJob, plan: TrainingPlan, progress: Progress, **facts: Any) -> TrainResult:
    """Return the result of ``job`` at ``progress``, with ``facts`` as its other fields."""
    counts = {"steps": 0, "samples": 0}
    facts = {**counts, "step": progress.step, "provider": job.provider, **facts}
    return TrainResult(job.plan, plan.plan.ranks, list(plan.plan.mesh), **facts)


def is_due(job: TrainJob, step: int) -> bool:
    """Return whether a checkpoint must be written after ``step``."""
    return job.checkpoint_every is not None and step % job.checkpoint_every == 0


def save_checkpoint(job: TrainJob, trainer: Trainer, comm: MPI.Comm) -> str | None:
    """Write a checkpoint of the current step, unless it is already written; returns its path.

    Returns None if the job has no folder for checkpoints. All ranks must call this.
    """
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


def export_trained(job: TrainJob, trainer: Trainer, comm: MPI.Comm) -> str | None:
    """Write the model with the trained weights, if requested; returns its path.

    All ranks must call this.
    """
    if job.export is None or job.model is None:
        return None
    path = Path(job.export)
    weights = path.with_name(f".{path.name}.safetensors")
    try:
        held, place = trainer.held, f"--export {path}"
        write_checkpoint(weights, held, trainer.progress, comm, moments=False, place=place)
        if comm.rank == 0:
            from tensoropt.runtime.training.export import export_model

            export_model(Path(job.model), weights, path)
        wait_idle(comm)
    finally:
        if comm.rank == 0:
            weights.unlink(missing_ok=True)
    return str(path)
