"""Starting a job: in the ranks that another launcher started, or else in new ones."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from tensoropt.runtime.launch.identity import identity
from tensoropt.runtime.launch.launcher import launch, ranks_present
from tensoropt.runtime.launch.link import LauncherLink, TerminalLink
from tensoropt.runtime.launch.workers import Worker, worker_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.job import Launched
from tensoropt.runtime.support.status_line import clear_line

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["start"]

_ending = threading.Event()
"""Another thread than the one that works has found the job to have failed."""

_ENDING_S = 10.0


def start(job: Launched) -> Any:
    """Check the job, run it and return its results; of ranks already present, whole on rank 0.

    Raises `UserError`.
    """
    worker = worker_of(job.kind)
    present = ranks_present()
    if present is not None:
        return _run_here(job, worker, present[0])
    ranks = worker.check(job).ranks
    return worker.from_values(launch(job, ranks, stoppable=worker.stoppable))


def _run_here(job: Launched, worker: Worker[Launched, Any], rank: int) -> Any:
    from tensoropt.runtime.launch.oversight import oversee
    from tensoropt.runtime.launch.world import world

    if job.timeout_s is not None:  # as long as ranks may wait for each other at most
        os.environ.setdefault("TENSOROPT_START_TIMEOUT_S", str(job.timeout_s))
    try:
        comm = world(identity(job))
    except UserError as failure:
        if rank > 0:  # whose errors nobody would see
            _say(f"rank {rank}: {failure}")
        raise
    talks = comm.rank == 0
    with oversee(job, comm, lambda why: _end(why, talks=talks)), _failing_together(comm):
        # One rank checks for all: the others would read every file once more.
        error = comm.bcast(_why_not(job, comm.size) if talks else None)
        link = TerminalLink() if worker.stoppable else LauncherLink()
        results = None if error is not None else worker.run(job, comm, link)
        clear_line()
    _finish()
    if error is not None:
        raise UserError(error)
    return results


@contextmanager
def _failing_together(comm: MPI.Comm) -> Iterator[None]:
    try:
        yield
    except BaseException as failure:
        _fail(one_line(failure), comm)


def _finish() -> None:
    """End the job in order: whatever status this process exits with, no rank has failed."""
    from mpi4py import MPI

    MPI.Finalize()


def _why_not(job: Launched, ranks: int) -> str | None:
    try:
        plan = worker_of(job.kind).check(job)
    except UserError as error:
        return str(error)
    if plan.ranks != ranks:
        wanted = f"mpiexec -n {plan.ranks}" if _ends_with_one() else f"WORLD_SIZE {plan.ranks}"
        return f"{plan.folder}: needs {plan.ranks} ranks, expected {wanted}, got: {ranks} ranks"
    return None


def _ends_with_one() -> bool:
    """Say whether the launcher ends all ranks as soon as one ends badly: those of MPI do."""
    return "PMI_RANK" in os.environ or "PMIX_RANK" in os.environ


def _fail(why: str, comm: MPI.Comm) -> NoReturn:
    """End all ranks: the others would wait for this one."""
    from tensoropt.runtime.ops import library

    if _ending.is_set():
        time.sleep(_ENDING_S)  # the other thread, which made this one fail, ends the process
    if not _ends_with_one():
        library.fail(why)  # where the others have failed before, this rank ends in here
    _say(f"rank {comm.rank} of {comm.size}: {why}")
    if _ends_with_one():
        comm.Abort(1)
    os._exit(1)


def _end(why: str, *, talks: bool) -> None:
    """End all ranks, from another thread than the one that works."""
    from tensoropt.runtime.launch.oversight import abort_and_exit
    from tensoropt.runtime.ops import library

    _ending.set()
    if talks or not _ends_with_one():
        _say(why)
    if not _ends_with_one():
        library.fail(why)
    abort_and_exit()


def _say(text: str) -> None:
    """Print an error even on the ranks whose output is otherwise dropped."""
    stream = sys.__stderr__
    if stream is not None:
        print(f"error: {text}", file=stream, flush=True)
