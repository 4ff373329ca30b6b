"""The program of one rank process: ``python -m tensoropt.runtime.rank FOLDER``.

FOLDER holds ``job.json`` and takes ``rank<r>.pid``, ``rank<r>.error`` and, from rank 0,
``results.json``. The launcher makes it and removes it.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import threading
from pathlib import Path

from tensoropt.runtime.errors import one_line
from tensoropt.runtime.job import Job, write_results
from tensoropt.runtime.work import run_job

__all__ = ["main"]


def main(folder: Path) -> None:
    job = Job.read(folder / "job.json")
    _end_with_launcher(job.launcher_pid, folder)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    _write(folder / f"rank{comm.rank}.pid", str(os.getpid()))
    try:
        results = run_job(job, comm)
        if comm.rank == 0:
            write_results(results, folder / "results.json")
    except BaseException as error:
        _write(folder / f"rank{comm.rank}.error", one_line(error))
        comm.Abort(1)


def _write(path: Path, text: str) -> None:
    """Write aside and rename, so that the launcher never reads half a line."""
    aside = path.with_suffix(".tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def _end_with_launcher(pid: int | None, folder: Path) -> None:
    """End this process, and remove the folder, if the launcher dies without cleaning up."""
    if pid is None or not hasattr(os, "pidfd_open"):
        return

    def watch(descriptor: int) -> None:
        select.select([descriptor], [], [])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, args=(os.pidfd_open(pid),), daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
