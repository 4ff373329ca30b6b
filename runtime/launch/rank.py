"""The program of one rank process: ``python -m tensoropt.runtime.launch.rank FOLDER``.

FOLDER holds ``job.json`` and takes ``rank<r>.pid``, ``rank<r>.error``, ``ended`` where a limit of
the job was passed and, from rank 0, ``results.json``. The launcher makes it and removes it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import threading
from pathlib import Path

from tensoropt.runtime.errors import one_line
from tensoropt.runtime.launch.link import FolderLink
from tensoropt.runtime.workers import worker_of

__all__ = ["main"]


def main(folder: Path) -> None:
    rank = os.environ.get("PMI_RANK", "0")  # known before MPI is, which may be what fails
    _write(folder / f"rank{rank}.pid", str(os.getpid()))
    try:
        _work(folder)
    except BaseException as error:
        _write(folder / f"rank{rank}.error", one_line(error))
        _abort()


def _work(folder: Path) -> None:
    values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    worker = worker_of(values.pop("kind"))
    job = worker.job_from(values)
    _end_with_launcher(job.launcher_pid, folder)
    from tensoropt.runtime.launch.oversight import oversee
    from tensoropt.runtime.world import world

    comm = world()
    with oversee(job, comm, lambda why: _end(folder, why)):
        results = worker.run(job, comm, FolderLink(folder))
    if comm.rank == 0:
        (folder / "results.json").write_text(json.dumps(worker.to_values(results)))


def _end(folder: Path, why: str) -> None:
    from tensoropt.runtime.launch.oversight import abort_and_exit

    _write(folder / "ended", why)
    abort_and_exit()


def _abort() -> None:
    """End every rank: the others would wait for this one."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        mpi.COMM_WORLD.Abort(1)
    os._exit(1)


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
