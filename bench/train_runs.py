"""Running plans that train, and what their logs say."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.launch.start import start
from tensoropt.runtime.training.job import TrainJob, TrainResult

__all__ = ["Run", "difference", "run_plan"]


@dataclass(frozen=True)
class Run:
    """The loss and the seconds of every step, and what the ranks say in the end."""

    losses: list[float]
    times_s: list[float]
    result: TrainResult


def run_plan(directory: Path, data: Path, steps: int, learning_rate: float, **options: Any) -> Run:
    """Train ``directory`` on ranks, samples in the order of ``data``; `TrainJob` has the options.

    Raises UserError where the job cannot run to its end.
    """
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        log = Path(folder) / "log.jsonl"
        given = {"log": str(log), "learning_rate": learning_rate, **options}
        result = start(TrainJob(plan=str(directory), steps=steps, data=str(data), **given))
        lines = log.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return Run([row["loss"] for row in rows], [row["time_s"] for row in rows], result)


def difference(losses: list[float], wanted: list[float]) -> float:
    """Return the largest relative difference of two curves of equal length; NaN if one has any."""
    found, held = np.array(losses), np.array(wanted)
    assert found.shape == held.shape
    return float(np.max(np.abs(found - held) / np.abs(held)))
