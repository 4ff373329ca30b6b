"""Scripts run on ranks, under mpiexec."""

from __future__ import annotations

import json
import os
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
    """Return the JSON that ``script`` printed on ``ranks`` ranks; it may import what lies here."""
    command = [_MPIEXEC, "-launcher", "fork", "-n", str(ranks), sys.executable, script]
    command += [str(argument) for argument in arguments]
    own = {**(os.environ if env is None else env), "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=own)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
