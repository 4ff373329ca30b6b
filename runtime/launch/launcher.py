"""Starting the ranks of a job, and telling which rank failed and why.

Ranks are processes of MPICH's ``mpiexec``, which ends all of them as soon as one ends badly. What
the ranks and this process tell each other goes through files in a temporary folder.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensoropt.runtime.errors import UserError
from tensoropt.runtime.job import Launched
from tensoropt.runtime.launch.link import ask_to_stop, clear_line, show_line, shown
from tensoropt.runtime.launch.oversight import ANSWER_S, PATIENCE_S

__all__ = ["launch", "ranks_present"]

_LOOK_S = 0.1  # between two looks at what the ranks say

_RANKS_END_S = PATIENCE_S + 2 * ANSWER_S  # for the ranks to end a job that is late

_GRACE_S = 5.0  # for mpiexec to end its ranks before they are killed one by one


_STARTED = ("PMI_RANK", "PMI_ID", "PMIX_RANK", "RANK", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def ranks_present() -> tuple[int, int] | None:
    """Return (rank, ranks) where another launcher started this process, else None.

    The number of ranks is 0 where only MPI knows it. Raises `UserError`.
    """
    if not any(name in os.environ for name in _STARTED):
        return None  # as nearly always, and without loading the library
    from tensoropt.runtime.ops import library

    return library.ranks()


def launch(job: Launched, ranks: int, *, stoppable: bool = False) -> Any:
    """Run the job on ``ranks`` new processes of this machine; returns rank 0's results, as JSON.

    The first Ctrl-C asks the ranks of a ``stoppable`` job to end in order. Raises `UserError`
    saying which rank failed and why, or which is where when a limit of the job has passed; by then
    every rank has ended.
    """
    with tempfile.TemporaryDirectory(prefix="tensoropt-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job = replace(job, launcher_pid=os.getpid(), started_at=time.monotonic())
        job.write(folder / "job.json")
        code = _run_ranks(folder, ranks, job.timeout_s, stoppable)
        results = folder / "results.json"
        if code == 0 and results.is_file():
            return json.loads(results.read_text(encoding="utf-8"))
        raise UserError(_reason(folder, ranks, code))


def _run_ranks(folder: Path, ranks: int, timeout_s: float | None, stoppable: bool) -> int:
    command = [_mpiexec(), "-launcher", "fork", "-print-all-exitcodes", "-n", str(ranks)]
    command += [sys.executable, "-P", "-m", "tensoropt.runtime.launch.rank", str(folder)]
    with (folder / "log").open("wb") as log, _terminable():
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # What the ranks' libraries leave behind (ONNX Runtime does) goes with the folder.
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,  # a Ctrl-C reaches this process only, which then ends the ranks
        )
        # The ranks themselves know where they are; what they are late with, they never began.
        limit = None if timeout_s is None else timeout_s + _RANKS_END_S
        try:
            if stoppable:
                return _watch(process, folder, limit)
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            raise UserError(_too_late(folder, ranks, timeout_s)) from None
        finally:
            _end(process, folder)


def _too_late(folder: Path, ranks: int, timeout_s: float | None) -> str:
    up = set(_pids(folder).values())
    missing = ", ".join(str(rank) for rank in range(ranks) if rank not in up)
    which = f"rank {missing} did not come up" if missing else "not all ranks came up"
    return f"no result within --timeout {timeout_s or 0:g} s: {which}, the {ranks} ranks were ended"


def _watch(process: subprocess.Popen[bytes], folder: Path, timeout_s: float | None) -> int:
    """Wait for the ranks' end, show what they say, and hand the first Ctrl-C on to them."""
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s
    asked = False
    try:
        while True:
            try:
                return _wait_showing(process, folder, end)
            except KeyboardInterrupt:
                if asked:
                    raise
                asked = True
                ask_to_stop(folder)
    finally:
        clear_line()


def _wait_showing(process: subprocess.Popen[bytes], folder: Path, end: float) -> int:
    last = ""
    while time.monotonic() < end:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_S)
        if (text := shown(folder)) != last:
            show_line(text)
            last = text
    raise subprocess.TimeoutExpired(process.args, 0.0)


def _mpiexec() -> str:
    """Return the mpiexec installed beside the Python interpreter, which mpi4py belongs to."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if found is None:
        raise UserError(f"{beside}: no mpiexec, expected it after: pip install mpich")
    return found


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception meanwhile, so that the ranks are ended and files removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not on the main thread: a signal is not ours to handle
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End mpiexec and, through it, the ranks; after a while by force."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in _pids(folder):
        if str(folder) in _command_line(pid):  # the number may belong to another process by now
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    _wait_gone(folder)


def _wait_gone(folder: Path) -> None:
    end = time.monotonic() + _GRACE_S
    while time.monotonic() < end:
        if not any(str(folder) in _command_line(pid) for pid in _pids(folder)):
            return
        time.sleep(0.01)


def _pids(folder: Path) -> dict[int, int]:
    """Return the ranks by process id, of the ranks that have come up."""
    return {
        int(path.read_text()): int(path.stem.removeprefix("rank"))
        for path in folder.glob("rank*.pid")
    }


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _reason(folder: Path, ranks: int, code: int) -> str:
    """Return why a job failed: the first rank's own words, else what mpiexec saw."""
    ended = folder / "ended"
    if ended.is_file():
        return ended.read_text(encoding="utf-8")
    errors = sorted(folder.glob("rank*.error"), key=lambda path: path.stat().st_mtime_ns)
    if errors:
        rank = errors[0].stem.removeprefix("rank")
        return f"rank {rank} of {ranks}: {errors[0].read_text(encoding='utf-8')}"
    log = (folder / "log").read_text(encoding="utf-8", errors="replace")
    return _killed(log, folder, ranks) or _ended(log, ranks) or _unknown(log, code)


def _killed(log: str, folder: Path, ranks: int) -> str | None:
    """Read mpiexec's message about the first process that a signal ended."""
    found = re.search(r"PID (\d+) RUNNING AT.*?EXIT STRING: .*?\(signal (\d+)\)", log, re.DOTALL)
    if found is None:
        return None
    rank = _pids(folder).get(int(found[1]), "?")
    hint = " (out of memory?)" if int(found[2]) == signal.SIGKILL else ""
    return f"rank {rank} of {ranks} was killed by signal {found[2]}{hint}"


def _ended(log: str, ranks: int) -> str | None:
    """Read mpiexec's list of exit codes: by rank, as the system's wait gives them."""
    found = re.search(r"Exit codes: \[[^]]*\] ([\d,]+)", log)
    codes = [int(code) for code in found[1].split(",")] if found else []
    bad = [(rank, code) for rank, code in enumerate(codes) if code]
    return f"rank {bad[0][0]} of {ranks} ended with exit code {bad[0][1] >> 8}" if bad else None


def _unknown(log: str, code: int) -> str:
    last = log.strip().splitlines()[-1:] or ["no message"]
    return f"mpiexec ended with exit code {code}: {last[0]}"
