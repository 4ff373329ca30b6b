"""Start of a job: in the ranks that another launcher started, or else in new ranks."""

from __future__ import annotations

import os
import sys
import threading
import time
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
"""Set when the watchdog thread has found that the job has failed."""

_ENDING_S = 10.0


def start(job: Launched) -> Any:
    """Check the job, run it and return its results.

    In ranks that another launcher started, only rank 0 returns complete results. Raises
    `UserError`.
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

    if job.timeout_s is not None:  # the longest time that ranks may wait for each other
        os.environ.setdefault("TENSOROPT_START_TIMEOUT_S", str(job.timeout_s))
    try:
        comm = world(identity(job))
    except UserError as failure:
        if rank > 0:  # otherwise errors are printed only on rank 0
            _print_error(f"rank {rank}: {failure}")
        raise
    talks = comm.rank == 0
    with oversee(job, comm, lambda why: _end(why, talks=talks)):
        try:
            # One rank checks for all: otherwise each rank would read all files.
            error = comm.bcast(_check(job, comm.size) if talks else None)
            link = TerminalLink() if worker.stoppable else LauncherLink()
            results = None if error is not None else worker.run(job, comm, link)
            clear_line()
        except BaseException as failure:
            _fail(one_line(failure), comm)
    from mpi4py import MPI  # `world` has initialised MPI before this import

    MPI.Finalize()  # in order: no rank has failed, even if this process ends with an error
    if error is not None:
        raise error
    return results


def _check(job: Launched, ranks: int) -> UserError | None:
    """Return the reason why ``ranks`` ranks cannot run the job, or None."""
    try:
        plan = worker_of(job.kind).check(job)
    except UserError as error:
        return error
    if plan.ranks != ranks:
        wanted = f"mpiexec -n {plan.ranks}" if _ends_with_one() else f"WORLD_SIZE {plan.ranks}"
        needed = f"{plan.folder}: needs {plan.ranks} ranks"
        return UserError(f"{needed}, expected {wanted}, got: {ranks} ranks")
    return None


def _ends_with_one() -> bool:
    """Return whether the launcher ends all ranks when one fails, as launchers of MPI do."""
    return "PMI_RANK" in os.environ or "PMIX_RANK" in os.environ


def _fail(why: str, comm: MPI.Comm) -> NoReturn:
    """End all ranks: the others would wait for this rank."""
    from tensoropt.runtime.ops import library

    if _ending.is_set():
        time.sleep(_ENDING_S)  # the watchdog caused this failure, and ends the process
    if not _ends_with_one():
        library.fail(why)  # does not return if another rank has failed before
    _print_error(f"rank {comm.rank} of {comm.size}: {why}")
    if _ends_with_one():
        comm.Abort(1)
    os._exit(1)


def _end(why: str, *, talks: bool) -> None:
    """End all ranks from the watchdog thread."""
    from tensoropt.runtime.launch.oversight import abort_and_exit
    from tensoropt.runtime.ops import library

    _ending.set()
    if talks or not _ends_with_one():
        _print_error(why)
    if not _ends_with_one():
        library.fail(why)
    abort_and_exit()


def _print_error(text: str) -> None:
    """Print an error on any rank, even if the rank's stderr is redirected."""
    stream = sys.__stderr__
    if stream is not None:
        print(f"error: {text}", file=stream, flush=True)
