"""The program of one rank process: ``python -m tensoropt.runtime.launch.rank FOLDER``.

FOLDER contains ``job.json``. The rank writes ``rank<r>.up``, ``rank<r>.refused`` for a `UserError`
or ``rank<r>.error`` for another error, ``ended`` when a limit of the job has passed and, on rank 0,
``results.json``. The launcher creates and removes the folder.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from tensoropt.runtime.launch.link import FolderLink, write_aside
from tensoropt.runtime.launch.workers import worker_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.parent import end_with

__all__ = ["main"]


def main(folder: Path) -> None:
    rank = os.environ["RANK"]
    (folder / f"rank{rank}.up").touch()
    try:
        _work(folder)
    except BaseException as error:
        from tensoropt.runtime.ops import library

        # Does not return if this rank failed only because another rank was killed: the library
        # then ends it, so that the killed rank is reported.
        library.fail(one_line(error))
        kind = "refused" if isinstance(error, UserError) else "error"
        write_aside(folder / f"rank{rank}.{kind}", one_line(error))
        os._exit(1)


def _work(folder: Path) -> None:
    values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    worker = worker_of(values.pop("kind"))
    job = worker.job_from(values)
    end_with(job.launcher_pid)  # in case the guardian does not end it
    from tensoropt.runtime.launch.oversight import oversee
    from tensoropt.runtime.launch.world import world

    comm, link = world(), FolderLink(folder)
    with nullcontext() if worker.requests else oversee(job, comm, link.end):
        results = worker.run(job, comm, link)
    if comm.rank == 0:
        (folder / "results.json").write_text(json.dumps(worker.to_values(results)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
