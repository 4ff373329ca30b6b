"""The stand-ins for NCCL and the CUDA runtime: built once, and what they wrote down."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["calls", "communication", "environment", "stand_ins"]

_SOURCE = Path(__file__).parent.parent / "stand_in"
_BUILD = _SOURCE.parent.parent / "build" / "stand_in"
_COMMUNICATION = {
    "ncclAllReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclBroadcast",
    "ncclSend",
    "ncclRecv",
}


@functools.cache
def stand_ins() -> Path:
    """Return the folder of the two libraries; compiles what changed since the last time."""
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of this test run want them too
        mpicxx = Path(sys.executable).with_name("mpicxx")
        _cmake("-S", _SOURCE, "-B", _BUILD, f"-DCMAKE_CXX_COMPILER={mpicxx}")
        _cmake("--build", _BUILD, "--parallel", "2")
    return _BUILD


def _cmake(*arguments: str | Path) -> None:
    beside = Path(sys.executable).with_name("cmake")
    program = beside if beside.is_file() else shutil.which("cmake")
    assert program is not None, "no cmake, expected it after: pip install '.[dev]'"
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def environment(log: Path | None = None, **settings: object) -> dict[str, str]:
    """Return a process's environment in which the stand-ins take the libraries' place.

    They write to the folder ``log``. ``settings`` are theirs, without ``TENSOROPT_STAND_IN_``.
    """
    own = {f"TENSOROPT_STAND_IN_{name.upper()}": str(value) for name, value in settings.items()}
    if log is not None:
        log.mkdir(parents=True, exist_ok=True)
        own["TENSOROPT_NCCL_LOG"] = str(log)
    return {**os.environ, "TENSOROPT_STAND_IN": str(stand_ins()), **own}


def calls(log: Path, rank: int) -> list[dict[str, Any]]:
    """Return what one rank called, in order."""
    path = log / f"rank{rank}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def communication(log: Path, rank: int) -> list[dict[str, Any]]:
    """Return the collectives, sends and receives among one rank's calls."""
    return [call for call in calls(log, rank) if call["call"] in _COMMUNICATION]
