"""Failure reports of jobs: the rank at fault, with its error if it reported one."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tensoropt.runtime.launch.processes import Processes
from tensoropt.runtime.support.errors import RankFailedError, TensoroptError, UserError, shortage

__all__ = ["failure", "reason"]

_HEAR_S = 1.0  # for the other ranks to learn which rank has ended

_HINTS: dict[int, str] = {
    signal.SIGKILL: " (out of memory?)",
    signal.SIGBUS: " (no room left in /dev/shm, or on the disk of a mapped file?)",
}

_HEARD = re.compile(r"^error: (rank \d+ of \d+ ended.*)$", re.MULTILINE)


def reason(processes: Processes, log: Path, begin: int = 0) -> str:
    """Return why a job failed: the first reported error of a rank, else how the rank ended.

    ``log`` has the output of the ranks, from byte ``begin`` on.
    """
    folder, ranks = processes.folder, processes.count
    if not (folder / "ended").is_file() and not _errors(folder):
        processes.settle(_HEAR_S)
    ended = folder / "ended"
    if ended.is_file():
        return ended.read_text(encoding="utf-8")
    errors = _errors(folder)
    if errors:
        rank = errors[0].stem.removeprefix("rank")
        return f"rank {rank} of {ranks}: {errors[0].read_text(encoding='utf-8')}"
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read().decode(errors="replace")
    found = _killed(processes) or _ended(processes, text)
    remedy = shortage(text)
    return found if remedy is None else f"{found}, as the system gave it too little: {remedy}"


def failure(processes: Processes, log: Path, begin: int = 0) -> TensoroptError:
    """Return `reason` as an error: a `UserError` if the first rank to fail rejected its input."""
    text = reason(processes, log, begin)
    first = next(iter(_errors(processes.folder)), None)
    is_refused = first is not None and first.suffix == ".refused"
    return UserError(text) if is_refused else RankFailedError(text)


def _errors(folder: Path) -> list[Path]:
    """Return the error files of the ranks, the oldest first."""
    found = [*folder.glob("rank*.error"), *folder.glob("rank*.refused")]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _killed(processes: Processes) -> str | None:
    """Return a message about the process that a signal ended, if any."""
    ranks = processes.count
    for rank, code in processes.codes().items():
        if code < 0:
            hint = _HINTS.get(-code, "")
            return f"rank {rank} of {ranks} was killed by signal {-code}{hint}"
    if processes.lost_guardian():
        return "the process that cleans up after the ranks was killed"
    return None


def _ended(processes: Processes, log: str) -> str:
    """Return a message about the rank that ended by itself, from the log or its exit code."""
    if heard := _HEARD.search(log):
        return heard[1]
    bad = [(rank, code) for rank, code in processes.codes().items() if code]
    last = log.strip().splitlines()[-1:] or ["no message"]
    if not bad:
        return f"the ranks ended without a result: {last[0]}"
    return f"rank {bad[0][0]} of {processes.count} ended with exit code {bad[0][1]}: {last[0]}"
