"""Starting a job: in the ranks that mpiexec or srun started, or else in new ones."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from tensoropt.runtime.errors import UserError, one_line
from tensoropt.runtime.job import Launched
from tensoropt.runtime.launcher import launch, ranks_present
from tensoropt.runtime.link import Link, TerminalLink, clear_line
from tensoropt.runtime.workers import worker_of

__all__ = ["start"]


def start(job: Launched, timeout_s: float | None = None) -> Any:
    """Check the job, run it and return its results; of ranks already present, whole on rank 0.

    Raises `UserError`.
    """
    present = ranks_present()
    if present is not None:
        return _run_here(job, *present, timeout_s)
    worker = worker_of(job.kind)
    ranks = worker.check(job).ranks
    return worker.from_values(launch(job, ranks, timeout_s, stoppable=worker.stoppable))


def _run_here(job: Launched, rank: int, ranks: int, timeout_s: float | None) -> Any:
    from mpi4py import MPI

    worker = worker_of(job.kind)

    comm = MPI.COMM_WORLD
    # One rank checks for all: the others would read every file once more.
    error = comm.bcast(_why_not(job, ranks) if rank == 0 else None)
    if error is not None:
        raise UserError(error)
    timer = _end_after(timeout_s, rank)
    try:
        results = worker.run(job, comm, TerminalLink() if worker.stoppable else Link())
    except BaseException as failure:
        _say(f"rank {rank} of {ranks}: {one_line(failure)}")
        comm.Abort(1)
        raise
    clear_line()
    if timer is not None:
        timer.cancel()
    return results


def _why_not(job: Launched, ranks: int) -> str | None:
    try:
        plan = worker_of(job.kind).check(job)
    except UserError as error:
        return str(error)
    if plan.ranks != ranks:
        return (
            f"{plan.folder}: needs {plan.ranks} ranks, "
            f"expected mpiexec -n {plan.ranks}, got: {ranks} ranks"
        )
    return None


def _end_after(timeout_s: float | None, rank: int) -> threading.Timer | None:
    """End this process when the time has passed; mpiexec then ends the other ranks."""
    if timeout_s is None:
        return None

    def end() -> None:
        if rank == 0:
            _say(f"no result within --timeout {timeout_s:g} s")
        os._exit(1)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    return timer


def _say(text: str) -> None:
    """Print an error even on the ranks whose output is otherwise dropped."""
    stream = sys.__stderr__
    if stream is not None:
        print(f"error: {text}", file=stream, flush=True)
