"""Cleanup process of a job, which outlives the launcher: ``python -I -S guardian.py FOLDER``.

It waits until the pipe at its stdin closes: the launcher closes it at the end of the job, and the
system when the launcher dies. Then it kills the ranks and removes the files of the job. It leads
the process group of the ranks. It imports nothing of the project, so that it starts before
anything that it must remove.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["SHARED", "clean", "shared_memory"]

_PATIENCE_S = 4.0  # for killed processes to end
SHARED = Path("/dev/shm")


def clean(folder: Path, group: int) -> None:
    """Kill the processes of ``group`` except this process, and remove the job's files.

    The name of the job is the name of its ``folder``.
    """
    end = time.monotonic() + _PATIENCE_S
    while (found := list(_others(group))) and time.monotonic() < end:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for path in shared_memory(folder.name):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def shared_memory(job: str) -> list[Path]:
    """Return the shared-memory files of a job's ranks, under the names that MPICH uses.

    They exist only while MPI starts: MPICH unlinks a file as soon as all ranks have mapped it.
    """
    number = 0x811C9DC5  # 32 bits of FNV-1a
    for byte in job.encode():
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return sorted(SHARED.glob(f"mpich_*_{number:x}_*"))


def _others(group: int) -> Iterator[int]:
    """Yield the living processes of a group, except this process."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            state, _, its = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its) == group and state not in "ZX" and int(process.name) != os.getpid():
                yield int(process.name)


def _main(folder: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the launcher handles them
    os.read(sys.stdin.fileno(), 1)
    clean(folder, os.getpgrp())


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
