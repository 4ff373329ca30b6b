"""The launcher: starts the ranks of a job, and reports which rank failed and why.

The ranks and the launcher communicate through files in a temporary folder.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensoropt.runtime.launch.link import ENDING, ask_to_stop, read_progress
from tensoropt.runtime.launch.oversight import RANKS_END_S
from tensoropt.runtime.launch.processes import Processes
from tensoropt.runtime.launch.reason import failure
from tensoropt.runtime.support.errors import RankFailedError
from tensoropt.runtime.support.job import Launched
from tensoropt.runtime.support.status_line import clear_line, show_line

__all__ = ["hand_over", "launch", "launch_one", "ranks_present"]

_LOOK_S = 0.1  # polling interval of the ranks' progress

_STARTED = ("PMI_RANK", "PMI_ID", "PMIX_RANK", "RANK", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def ranks_present() -> tuple[int, int] | None:
    """Return (rank, ranks) if another launcher started this process, else None.

    The number of ranks is 0 if only MPI can find it. Raises `UserError`.
    """
    if not any(name in os.environ for name in _STARTED):
        return None  # the common case, without loading the library
    from tensoropt.runtime.ops import library

    return library.ranks()


def launch(
    job: Launched, ranks: int, *, stoppable: bool = False, output: Path | None = None
) -> Any:
    """Run the job on ``ranks`` new processes of this machine; returns rank 0's results, as JSON.

    The ranks' output is appended to the file ``output``, or else discarded at their end. After the
    first SIGINT, SIGTERM or SIGHUP the ranks of a ``stoppable`` job end in order. Raises
    `UserError` if a rank rejects its input. Raises `RankFailedError` otherwise, with the failed
    rank and the reason, or with the position of each rank after a limit of the job has passed. All
    ranks have ended when it raises.
    """
    with _terminable(), Processes() as processes:
        job = hand_over(job, processes.folder)
        log = output or processes.folder / "log"
        begin = log.stat().st_size if log.exists() else 0
        show_line(f"starting {ranks} rank{'' if ranks == 1 else 's'}")
        processes.start(ranks, log)
        _wait(processes, job.timeout_s, stoppable)
        return _results(processes, log, begin)


def launch_one(
    job: Launched, rank: int, ranks: int, environment: Mapping[str, str], output: Path
) -> Any:
    """Run one rank of the job, which finds the others through ``environment``.

    Returns and raises the same as `launch`, but returns None for a rank other than 0.
    """
    with _terminable(), Processes() as processes:
        hand_over(job, processes.folder)
        processes.start_one(rank, ranks, environment, output)
        processes.wait(math.inf)
        return _results(processes, output, 0)


def hand_over(job: Launched, folder: Path) -> Launched:
    """Write the job to ``folder`` for the ranks of this process; returns the job that they read."""
    job = replace(job, launcher_pid=os.getpid(), started_at=time.monotonic())
    job.write(folder / "job.json")
    return job


def _results(processes: Processes, log: Path, begin: int) -> Any:
    """Return the results of rank 0; raises `failure` unless all ranks have ended in order."""
    results, talks = processes.folder / "results.json", 0 in processes.ranks
    if processes.codes() != dict.fromkeys(processes.ranks, 0) or (talks and not results.is_file()):
        raise failure(processes, log, begin)
    return json.loads(results.read_text(encoding="utf-8")) if talks else None


def _wait(processes: Processes, timeout_s: float | None, stoppable: bool) -> None:
    """Wait for the ranks' end; forward the first signal to them if they can stop in order."""
    # Ranks that have started end a late job themselves and report their positions. This later
    # limit is for ranks that have not.
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s + RANKS_END_S
    try:
        if _wait_showing(processes, end):
            return
    except (KeyboardInterrupt, _EndedBySignal) as asked:
        if not stoppable:
            raise
        number = asked.number if isinstance(asked, _EndedBySignal) else signal.SIGINT
        ask_to_stop(processes.folder, number)
        if _wait_showing(processes, end):
            return
    finally:
        clear_line()
    raise RankFailedError(_too_late(processes, timeout_s))


def _wait_showing(processes: Processes, end: float) -> bool:
    """Show progress until the ranks have ended or one has failed; returns False at ``end``."""
    last = ""
    while not processes.wait(min(_LOOK_S, end - time.monotonic())):
        if time.monotonic() >= end:
            return False
        if (text := read_progress(processes.folder)) != last:
            show_line(text)
            last = text
    return True


def _too_late(processes: Processes, timeout_s: float | None) -> str:
    ranks = processes.count
    up = {int(path.stem.removeprefix("rank")) for path in processes.folder.glob("rank*.up")}
    missing = ", ".join(str(rank) for rank in range(ranks) if rank not in up)
    which = f"rank {missing} did not come up" if missing else "not all ranks came up"
    return f"no result within --timeout {timeout_s or 0:g} s: {which}, the {ranks} ranks were ended"


class _EndedBySignal(SystemExit):
    """A signal ends this process, unless ranks are asked to stop in order first."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn signals that end this process into exceptions, so that it ends its ranks first.

    A signal that is ignored, as under nohup, stays ignored.
    """

    def end(number: int, _: object) -> None:
        raise _EndedBySignal(number)

    before = {}
    try:
        for ending in ENDING:
            if signal.getsignal(ending) is not signal.SIG_IGN:
                before[ending] = signal.signal(ending, end)
    except ValueError:  # not on the main thread: a signal is not ours to handle
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
