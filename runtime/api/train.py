"""Training a plan from Python."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from tensoropt.runtime.api.arguments import arrays_folder, file_of
from tensoropt.runtime.family.document import FAMILY_FILE
from tensoropt.runtime.family.family import Family
from tensoropt.runtime.launch.start import start
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.options import shows_options
from tensoropt.runtime.training.job import TrainArguments, TrainJob, TrainResult

__all__ = ["TrainingInterrupted", "TrainingRun", "run_job", "train"]


@dataclass(frozen=True)
class TrainingRun:
    """Results of a training run: ``result`` has totals, the other fields one number per step.

    Step times are measured on rank 0 and include reading the data. A step in which all labels are
    ignored has the loss NaN, as in PyTorch. ``evaluation_losses`` has the losses on held-out data
    by step.
    """

    result: TrainResult
    losses: tuple[float, ...]
    step_times_s: tuple[float, ...]
    learning_rates: tuple[float, ...]
    evaluation_losses: Mapping[int, float]

    def __repr__(self) -> str:
        last = f", loss {self.losses[0]:.6g} -> {self.losses[-1]:.6g}" if self.losses else ""
        return f"<TrainingRun of {self.result.plan}: {len(self.losses)} steps{last}>"

    @property
    def step(self) -> int:
        """The last step, counted from the start of the first run that was resumed."""
        return self.result.step

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint after the last step, None without checkpoints."""
        return None if self.result.checkpoint is None else Path(self.result.checkpoint)


class TrainingInterrupted(KeyboardInterrupt):  # named like its base class
    """Ctrl-C ended training in order; ``run`` has the results of the steps taken."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        saved = "" if self.run.checkpoint is None else f", the checkpoint is {self.run.checkpoint}"
        return f"training was interrupted after step {self.run.step}{saved}"


@shows_options(TrainJob, TrainArguments)
def train(
    plan: str | PathLike[str],
    data: str | PathLike[str] | Mapping[str, ArrayLike],
    steps: int,
    *,
    devices: int | None = None,
    **options: Unpack[TrainArguments],
) -> TrainingRun:
    """Train a plan, or the plan in a folder, for ``steps`` steps on this machine.

    From a family of plans, the fastest plan for ``devices`` devices is trained. It starts at the
    family's initial checkpoint, unless ``resume`` is given. `tensoropt-job` can change the devices
    during training; this function cannot.

    ``data`` are arrays by input name, with samples along dimension 0, or a file or folder of
    arrays, or samples from Python as ``"module:factory"``. The other arguments are flags of
    `tensoropt-run --train`. The learning rate rises to ``learning_rate`` in ``warmup`` steps, and
    then follows ``schedule`` (constant, cosine, linear) until ``total_steps``, down to
    ``min_learning_rate``. ``shuffle`` is the seed of the order of samples. ``evaluate_data``, in
    the forms of ``data``, are held out: the loss on them is computed every ``evaluate_every`` steps
    and after the last. Checkpoints are written to the folder ``checkpoint``, every
    ``checkpoint_every`` steps and at the end; ``resume`` continues from a checkpoint. ``export``
    writes ``model`` with the trained weights.

    Raises :class:`UserError`, also for a loss that is not finite. Ctrl-C finishes the current step
    and raises :class:`TrainingInterrupted`.
    """
    folder, initial = _choose_plan(Path(plan), devices)
    held_out = options.get("evaluate_data")
    with arrays_folder() as arrays:
        own: dict[str, Any] = {
            **options,
            "data": file_of(data, arrays, "data", folder),
            "evaluate_data": file_of(held_out, arrays, "evaluate_data", folder)
            if held_out
            else None,
            "log": options.get("log") or Path(arrays, "log.jsonl"),
            "resume": options.get("resume") or initial,
        }
        job = TrainJob(str(folder), steps=steps, **own)
        result = run_job(job)
        run = _run_of(result, Path(str(job.log)))
    if result.stop_signal:
        raise TrainingInterrupted(run)
    return run


def run_job(job: TrainJob) -> TrainResult:
    """Train and return the result; raises :class:`UserError` if an error ended training."""
    result: TrainResult = start(job)
    if result.error is not None:
        saved = f" (the state before it is in {result.checkpoint})" if result.checkpoint else ""
        raise UserError(f"{result.plan}: {result.error}{saved}")
    return result


def _choose_plan(folder: Path, devices: int | None) -> tuple[Path, Path | None]:
    """Return the folder of the plan to train and, for a family, its initial checkpoint."""
    if not (folder / FAMILY_FILE).is_file():
        if devices is not None:
            raise UserError(f"{folder}: is one plan, expected no devices={devices}")
        return folder, None
    family = Family.read(folder)
    if devices is None:
        counts = ", ".join(map(str, family.counts))
        raise UserError(f"{folder}: is a family of plans for {counts} devices, expected devices=")
    return family.for_devices(devices).path, family.initial


def _run_of(result: TrainResult, log: Path) -> TrainingRun:
    lines = log.read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines[len(lines) - result.steps :]]
    for step in steps:
        step["loss"] = math.nan if step["loss"] is None else step["loss"]
    losses, times_s, rates = (
        tuple(step[name] for step in steps) for name in ("loss", "time_s", "learning_rate")
    )
    found = {s["step"]: s["evaluation_loss"] for s in steps if "evaluation_loss" in s}
    return TrainingRun(result, losses, times_s, rates, found)
