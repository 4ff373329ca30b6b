"""Scripts run on ranks, under mpiexec."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["under_mpi"]

_MPIEXEC = Path(sys.executable).with_name("mpiexec")


def under_mpi(
    ranks: int, script: Path, *arguments: object, env: Mapping[str, str] | None = None
) -> Any:
    """Return the JSON that ``script`` printed on ``ranks`` ranks."""
    command = [_MPIEXEC, "-launcher", "fork", "-n", str(ranks), sys.executable, script]
    command += [str(argument) for argument in arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
