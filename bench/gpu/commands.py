"""Commands of tensoropt, called as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu.failure import RunError

__all__ = ["tensoropt_opt", "tensoropt_profile", "tensoropt_run"]

_LIMIT_S, _PROFILE_LIMIT_S = 150.0, 300.0


def tensoropt_opt(*words: str | Path) -> str:
    """Run the compiler; return its stdout. Raises `RunError`."""
    return _run("tensoropt-opt", words)


def tensoropt_profile(*words: str | Path) -> str:
    """Run the profiler; return its stdout. Raises `RunError`."""
    return _run("tensoropt-profile", words, _PROFILE_LIMIT_S)


def tensoropt_run(*words: str | Path) -> Any:
    """Run plans; return the report that they print as JSON, even if they do not agree.

    Raises `RunError` if there is no report.
    """
    return json.loads(_run("tensoropt-run", [*words, "--format", "json"], failed_is_report=True))


def _run(
    name: str, words: Any, limit_s: float = _LIMIT_S, *, failed_is_report: bool = False
) -> str:
    command = [str(Path(sys.executable).with_name(name)), *map(str, words)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise RunError(f"{name}: no result in {limit_s:g} s") from None
    if ended.returncode and not (failed_is_report and ended.stdout):
        last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        raise RunError(f"{name}: {last.removeprefix('error: ')}")
    return ended.stdout
