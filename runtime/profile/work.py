"""Measurement on every rank: open a graph, feed it, and run it together with all other ranks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.check.trace import kernel_times_s, merge_ranks
from tensoropt.runtime.device.memory import return_freed
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.device.providers import provider_of
from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.ops import library
from tensoropt.runtime.profile.feeds import drawn_input
from tensoropt.runtime.profile.job import NO_TIME, Measured, ProfileJob, Task
from tensoropt.runtime.session.ranks import largest, make_on_all, share_of_cores, slowest_s
from tensoropt.runtime.session.session import RankSession, rank_session

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["run_profile"]

_WARM_UP, _LEAST_RUNS, _MOST_RUNS, _MOST_TRACED = 3, 5, 300, 30
# Runs stop after this multiple of a task's seconds: other work on the machine slows them down.
_PATIENCE = 3.0


@dataclass(frozen=True)
class _Place:
    """The execution provider and the number of threads of a rank."""

    threads: int
    provider: Provider


def run_profile(job: ProfileJob, comm: MPI.Comm, link: LauncherLink) -> list[Measured]:
    """Run the tasks on the ranks of ``comm``; the results are complete on rank 0 only.

    Ends after the current task if the user asks to stop.
    """
    if job.traced:
        # Otherwise a kernel launch returns before the kernel has run. The CUDA driver reads the
        # variable when it starts, with the first session.
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    return list(_all(job, comm, link))


def _all(job: ProfileJob, comm: MPI.Comm, link: LauncherLink) -> Iterator[Measured]:
    provider = provider_of(job, comm)
    if not job.tasks:
        yield _gpus(provider)
    threads = job.threads or share_of_cores(comm)
    what = "tracing" if job.traced else "timing"
    for number, task in enumerate(job.tasks):
        # Clocks differ: rank 0 decides for all.
        left_s = comm.bcast(math.inf if job.until is None else job.until - time.monotonic())
        if left_s <= 0:
            yield from (Measured(error=NO_TIME) for _ in job.tasks[number:])
            return
        if comm.rank == 0:
            link.show(f"{what} on {comm.size} ranks: {number + 1} of {len(job.tasks)}")
        yield _task(job, task, comm, _Place(threads, provider), left_s)
        if comm.bcast(link.stop_signal() if comm.rank == 0 else None):
            return


def _gpus(provider: Provider) -> Measured:
    if provider.name == "cpu":
        return Measured()
    facts = library.cuda()
    return Measured(gpu_bytes=facts["gpus"], gpu_names=facts["names"])


def _task(job: ProfileJob, task: Task, comm: MPI.Comm, place: _Place, left_s: float) -> Measured:
    path = Path(task.path(comm.rank))
    trace = path.with_suffix(f".trace{comm.rank}") if job.traced else None
    return_freed()  # memory of earlier graphs would be reused and not be counted
    memory = place.provider.measure()
    session, error = make_on_all(comm, partial(_open, path, place, trace, task.trains))
    if session is None:
        return Measured(error=error)
    runs = _warm_up(session, comm, task.seconds, left_s)
    if trace is None:
        times = _times(session, comm, runs, min(_PATIENCE * task.seconds, left_s))
        peak_bytes = largest(comm, memory.added_bytes())
        used = place.provider.used_bytes()  # on a device, all memory in use there
        process_bytes = largest(comm, memory.bytes() if used is None else used)
        return Measured(min(times), len(times), peak_bytes=peak_bytes, process_bytes=process_bytes)
    for _ in range(min(runs, _MOST_TRACED)):
        comm.Barrier()
        session.run()
    ranks = comm.gather(kernel_times_s(session.end_trace(), _WARM_UP))
    return Measured(0.0, runs, merge_ranks(ranks) if ranks else None, f"{trace}.onnx")


def _open(path: Path, place: _Place, trace: Path | None, trains: bool) -> RankSession:
    session = rank_session(path, place.threads, trace, provider=place.provider, trains=trains)
    for number, (name, kind, shape) in enumerate(session.signature()):
        session.feed(name, drawn_input(name, kind, shape, number))
    return session


def _warm_up(session: RankSession, comm: MPI.Comm, seconds: float, left_s: float) -> int:
    """Run a few times; return the number of runs that take ``seconds``, the same on all ranks.

    At least 1, and no more than fit in ``left_s``.
    """
    times = [slowest_s(comm, session.run) for _ in range(_WARM_UP)]
    least_s = max(min(times), 1e-6)
    fits = min(max(int(seconds / least_s), _LEAST_RUNS), _MOST_RUNS)
    return int(comm.bcast(max(min(fits, int(min(left_s / least_s, _MOST_RUNS))), 1)))


def _times(session: RankSession, comm: MPI.Comm, runs: int, most_s: float) -> list[float]:
    """Return the times of ``runs`` runs, or of fewer if these take more than ``most_s``.

    The times are the same on all ranks, so all ranks stop after the same run.
    """
    times: list[float] = []
    while len(times) < runs and (len(times) < _LEAST_RUNS or sum(times) < most_s):
        times.append(slowest_s(comm, session.run))
    return times
