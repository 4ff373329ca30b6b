"""Training a plan from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from tensoropt.runtime.api.given import arrays_folder, check_given, file_of
from tensoropt.runtime.family.document import FAMILY_FILE
from tensoropt.runtime.family.family import Family
from tensoropt.runtime.launch.start import start
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.job import TrainJob, TrainResult

__all__ = ["TrainingInterrupted", "TrainingRun", "run_job", "train"]


@dataclass(frozen=True)
class TrainingRun:
    """How training went: ``result`` has all figures, the rest is one number per step of this run.

    A step's time is that of rank 0, reading the data included.
    """

    result: TrainResult
    losses: tuple[float, ...]
    step_times_s: tuple[float, ...]
    learning_rates: tuple[float, ...]

    def __repr__(self) -> str:
        last = f", loss {self.losses[0]:.6g} -> {self.losses[-1]:.6g}" if self.losses else ""
        return f"<TrainingRun of {self.result.plan}: {len(self.losses)} steps{last}>"

    @property
    def step(self) -> int:
        """The last step, counted from the start of the first run."""
        return self.result.step

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint after the last step, where checkpoints were asked for."""
        return None if self.result.checkpoint is None else Path(self.result.checkpoint)


class TrainingInterrupted(KeyboardInterrupt):  # like what it is one of
    """Ctrl-C ended training in order; ``run`` is what was done until then."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__()
        self.run = run


def train(
    plan: str | PathLike[str],
    data: str | Path | Mapping[str, ArrayLike],
    steps: int,
    *,
    devices: int | None = None,
    learning_rate: float = 1e-3,
    warmup: int = 0,
    schedule: str = "constant",
    total_steps: int | None = None,
    shuffle: int | None = None,
    seed: int = 0,
    loss_scale: float | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    resume: str | Path | None = None,
    export: str | Path | None = None,
    model: str | Path | None = None,
    log: str | Path | None = None,
    provider: str = "cpu",
    threads: int | None = None,
    share_gpus: bool = False,
    cuda_graphs: bool = False,
    timeout_s: float | None = None,
    stall_s: float | None = None,
) -> TrainingRun:
    """Take ``steps`` steps of a plan for training, or of the one in a folder, on this machine.

    Of a family of plans it is the fastest for so many ``devices``; it starts where they all do,
    unless it is to ``resume``. To change them while it trains is for `tensoropt-job`.
    ``data`` are arrays by the name of the input, with samples first, or a file or folder of them,
    or samples from Python as ``"module:factory"``. Other arguments are flags of `tensoropt-run
    --train`: the rate rises to ``learning_rate`` in ``warmup`` steps and then follows ``schedule``
    (constant, cosine, linear) until ``total_steps``; ``shuffle`` is the seed of the order of
    samples; checkpoints are written to the folder ``checkpoint``, every ``checkpoint_every`` steps
    and at the end, and ``resume`` goes on from one; ``export`` writes ``model`` with the trained
    weights.

    Raises :class:`UserError`, also where a loss is not finite; Ctrl-C ends the step and raises
    :class:`TrainingInterrupted`.
    """
    given = dict(locals())
    for name in ("plan", "data", "devices"):
        del given[name]
    check_given(given)
    folder, initial = _taken(Path(plan), devices)
    given["resume"] = resume or initial
    if export is not None and model is None:
        raise UserError("--export: expected --model too")
    if checkpoint_every is not None and checkpoint is None:
        raise UserError("--checkpoint-every: expected --checkpoint DIR too")
    with arrays_folder() as arrays:
        options = {
            **given,
            "log": log or Path(arrays, "log.jsonl"),
            "data": file_of(data, arrays, "data"),
        }
        job = TrainJob(str(folder), **{name: _plain(value) for name, value in options.items()})
        result = run_job(job)
        run = _run_of(result, Path(str(job.log)))
    if result.stop_signal:
        raise TrainingInterrupted(run)
    return run


def run_job(job: TrainJob) -> TrainResult:
    """Train, and return how it went; raises :class:`UserError` for what stopped it."""
    result: TrainResult = start(job)
    if result.error is not None:
        kept = f" (the state before it is in {result.checkpoint})" if result.checkpoint else ""
        raise UserError(f"{result.plan}: {result.error}{kept}")
    return result


def _taken(folder: Path, devices: int | None) -> tuple[Path, Path | None]:
    """Return the plan to train, and the checkpoint that it starts from if it is one of a family."""
    if not (folder / FAMILY_FILE).is_file():
        if devices is not None:
            raise UserError(f"{folder}: is one plan, expected no devices={devices}")
        return folder, None
    family = Family.read(folder)
    if devices is None:
        counts = ", ".join(map(str, family.counts))
        raise UserError(f"{folder}: is a family of plans for {counts} devices, expected devices=")
    return family.for_devices(devices).path, family.initial


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _run_of(result: TrainResult, log: Path) -> TrainingRun:
    lines = log.read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines[len(lines) - result.steps :]]
    columns = [tuple(step[name] for step in steps) for name in ("loss", "time_s", "learning_rate")]
    return TrainingRun(result, *columns)
