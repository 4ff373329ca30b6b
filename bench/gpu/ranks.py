"""Calls of a function on ranks: ``on_ranks("gpu.piecewise:measure", 2, plan="plan/")``.

The function takes the communicator and the keyword arguments. The arguments and its result on rank
0 are passed as JSON. Started as a program, this module is one of the ranks.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from gpu.failure import RunError

__all__ = ["on_ranks"]

_LIMIT_S = 150.0


def on_ranks(function: str, ranks: int, limit_s: float = _LIMIT_S, **arguments: Any) -> Any:
    """Return the result of ``module:name`` on rank 0 of ``ranks`` new ranks. Raises `RunError`."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps({"function": function, "arguments": arguments}))
        command = [str(Path(sys.executable).with_name("mpiexec")), "-launcher", "fork"]
        command += ["-n", str(ranks), sys.executable, __file__, name]
        # Files that the ranks' libraries leave are deleted with the folder.
        environment = {**os.environ, "TMPDIR": name}
        try:
            ended = subprocess.run(command, env=environment, capture_output=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise RunError(f"no result in {limit_s:g} s") from None
        result = folder / "result.json"
        if ended.returncode or not result.is_file():
            raise RunError(_reason(folder, ended))
        return json.loads(result.read_text())


def _reason(folder: Path, ended: subprocess.CompletedProcess[bytes]) -> str:
    errors = sorted(folder.glob("rank*.error"), key=lambda path: path.stat().st_mtime_ns)
    if errors:
        return f"{errors[0].stem}: {errors[0].read_text()}"
    said = (ended.stderr + ended.stdout).decode(errors="replace").strip().splitlines()
    return f"exit status {ended.returncode}: {said[-1] if said else 'no message'}"


def _main(folder: Path) -> None:
    from tensoropt.runtime.launch.world import world

    comm = world()  # leaves no shared memory, however this process ends
    job = json.loads((folder / "job.json").read_text())
    module, _, name = job["function"].partition(":")
    try:
        result = getattr(importlib.import_module(module), name)(comm, **job["arguments"])
    except BaseException as error:
        text = " ".join(str(error).split())
        (folder / f"rank{comm.rank}.error").write_text(f"{type(error).__name__}: {text}")
        comm.Abort(1)
        raise
    if comm.rank == 0:
        (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
