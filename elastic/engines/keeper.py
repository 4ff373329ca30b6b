"""The launcher of one generation: ``python -m tensoropt.elastic.engines.keeper FILE``.

It survives its coordinator, so that a later one finds the generation. FILE contains the job and
`ROOM_BYTES` of spaces, and is overwritten with the outcome when the ranks have ended: ``result`` or
``error``. The spaces reserve room on a disk that may be full by then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tensoropt.runtime.launch.launcher import launch
from tensoropt.runtime.launch.workers import worker_of
from tensoropt.runtime.support.errors import TensoroptError, one_line

__all__ = ["GO", "ROOM_BYTES", "main"]

ROOM_BYTES = 1 << 16
"""Bytes reserved for the outcome in the file; an outcome takes a few kilobytes."""

GO = b"go"
"""Written to the keeper's stdin once the coordinator has recorded this process."""


def main(path: Path) -> None:
    """Run the generation described by the file at ``path``, to its end."""
    if sys.stdin.buffer.read() != GO:
        return  # the coordinator died before it recorded this process: start no orphan ranks
    asked = json.loads(path.read_text(encoding="utf-8"))
    outcome = json.dumps(_outcome(asked)).encode().ljust(path.stat().st_size)
    with path.open("r+b", buffering=0) as file:
        file.write(outcome)
        file.truncate(len(outcome))


def _outcome(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        worker = worker_of(asked["kind"])
        job = worker.job_from(asked["job"])
        ranks = worker.check(job).ranks
        return {"result": launch(job, ranks, output=Path(asked["output"]))}
    except TensoroptError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"the launcher failed: {one_line(error)}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
