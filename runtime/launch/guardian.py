"""What remains where a launcher was killed: ``python -I -S guardian.py FOLDER``.

A process beside the launcher that waits for its end, which closes the pipe at this one's stdin;
then, and when the launcher closes it at the job's end, it kills the ranks and removes what the job
left. It leads the process group that the ranks are in. It imports nothing of the project: it must
be there before anything that it has to remove.
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

__all__ = ["clean", "shared_memory"]

_PATIENCE_S = 4.0  # for killed processes to be gone
_SHARED = Path("/dev/shm")


def clean(folder: Path, group: int) -> None:
    """Kill the processes of ``group`` but this one, and remove the job's files.

    The job is called like its ``folder``.
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
    """Return the files through which the ranks of a job share memory, as MPICH names them.

    They exist only while MPI starts: MPICH removes the name as soon as all ranks have the file.
    """
    number = 0x811C9DC5  # 32 bits of FNV-1a
    for byte in job.encode():
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return sorted(_SHARED.glob(f"mpich_*_{number:x}_*"))


def _others(group: int) -> Iterator[int]:
    """Yield the living processes of a group, this one left out."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, its = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its) == group and state not in "ZX" and int(process.name) != os.getpid():
                yield int(process.name)


def _main(folder: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the launcher's matter
    os.read(sys.stdin.fileno(), 1)
    clean(folder, os.getpgrp())


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
