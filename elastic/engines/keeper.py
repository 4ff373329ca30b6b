"""The launcher of one generation: ``python -m tensoropt.elastic.engines.keeper FILE``.

It stays when its coordinator dies, so that another one finds the generation. FILE holds the job and
becomes, when the ranks have ended, how they did: ``result`` or ``error``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tensoropt.runtime.launch.launcher import launch
from tensoropt.runtime.launch.workers import worker_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.files import replace_private

__all__ = ["GO", "main"]

GO = b"go"
"""What a coordinator says that has written down where to find this process."""


def main(path: Path) -> None:
    """Run the generation that the file at ``path`` asks for, to its end."""
    if sys.stdin.buffer.read() != GO:
        return  # it died before it could: nobody would know of these ranks
    asked = json.loads(path.read_text(encoding="utf-8"))
    replace_private(path, json.dumps(_outcome(asked)))


def _outcome(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        worker = worker_of(asked["kind"])
        job = worker.job_from(asked["job"])
        ranks = worker.check(job).ranks
        return {"result": launch(job, ranks, output=Path(asked["output"]))}
    except UserError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"the launcher failed: {one_line(error)}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
