"""Runs of training plans, alone or in turns, and their logs."""

from __future__ import annotations

import json
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from turns import Gate, Place

from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.launch.start import start
from tensoropt.runtime.launch.world import world
from tensoropt.runtime.training.job import TrainJob, TrainResult
from tensoropt.runtime.training.work import run_training

__all__ = ["Run", "difference", "run_plan", "trained_by_turns"]

_ENDLESS = 1_000_000


@dataclass(frozen=True)
class Run:
    """Loss and seconds of every step, and the final result of the ranks."""

    losses: list[float]
    times_s: list[float]
    result: TrainResult


def run_plan(directory: Path, data: Path, steps: int, learning_rate: float, **options: Any) -> Run:
    """Train ``directory`` on ranks, with samples in the order of ``data``.

    ``options`` are fields of `TrainJob`. Raises UserError if the job cannot finish.
    """
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        log = Path(folder) / "log.jsonl"
        given = {"log": str(log), "learning_rate": learning_rate, **options}
        result = start(TrainJob(plan=str(directory), steps=steps, data=str(data), **given))
        rows = _rows(log)
    return Run([row["loss"] for row in rows], [row["time_s"] for row in rows], result)


def _rows(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


class _Gated(LauncherLink):
    """A launcher link that blocks before each step until its turn."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def stop_signal(self) -> int:
        return 0 if self._gate() else signal.SIGINT


def trained_by_turns(
    place: Place, gate: Gate, directory: Path, data: Path, learning_rate: float
) -> list[float]:
    """Run a rank of ``directory`` on one thread; a `turns.Way` once plan and data are bound.

    Returns the losses of the steps on rank 0, an empty list on other ranks.
    """
    place.announce()
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        log = Path(folder) / "log.jsonl"
        job = TrainJob(
            plan=str(directory),
            steps=_ENDLESS,
            data=str(data),
            learning_rate=learning_rate,
            threads=1,
            log=str(log),
        )
        run_training(job, world(), _Gated(gate))
        return [row["loss"] for row in _rows(log)] if place.rank == 0 else []


def difference(losses: list[float], wanted: list[float]) -> float:
    """Return the largest relative difference of two curves of equal length; NaN if one has any."""
    found, expected = np.array(losses), np.array(wanted)
    assert found.shape == expected.shape
    return float(np.max(np.abs(found - expected) / np.abs(expected)))
