"""Creation of a rank's training step, with CUDA graphs if requested and possible."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.session.ranks import make_on_all
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.staged import StagedStep
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import ROLES, TrainingStep

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["open_step"]


def open_step(
    job: TrainJob, state: Held, threads: int, folder: Path, comm: MPI.Comm
) -> tuple[TrainingStep | StagedStep | None, str | None, str | None]:
    """Return the rank's step, the outcome of CUDA graphs if requested, and an error.

    If a rank cannot capture both graphs, all ranks try to capture only the update, which has fewer
    collectives. If that fails too, no graph is captured. The graphs of stages are never captured.
    """
    if state.plan.stages is not None:
        messages = comm.Dup()
        made = partial(StagedStep, state.plan, state, threads, messages, folder)
        staged, error = make_on_all(comm, made)
        return staged, None, error
    text = "captured" if job.cuda_graphs else None
    for captured in (ROLES, ROLES[1:], ()) if job.cuda_graphs else ((),):
        step, error = make_on_all(
            comm, partial(TrainingStep, state.plan, state, threads, folder, captured)
        )
        if step is not None:
            if captured:
                step.rehearse()
            return step, text, None
        kept = "the update captured" if captured == ROLES else "not captured"
        text = f"{kept}: {error}"
    return None, None, error
