"""Training a plan from Python."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensoropt.runtime.launch.start import start
from tensoropt.runtime.support.errors import UserError, did_you_mean
from tensoropt.runtime.support.flags import integer, number
from tensoropt.runtime.support.job import PROVIDERS
from tensoropt.runtime.training.job import SCHEDULES, TrainJob, TrainResult

__all__ = ["TrainingInterrupted", "TrainingRun", "run_job", "train"]

_BOUNDS: Mapping[str, Callable[[str], float]] = {
    "steps": integer(1),
    "shuffle": integer(0),
    "learning_rate": number(0.0),
    "warmup": integer(0),
    "total_steps": integer(1),
    "seed": integer(0),
    "loss_scale": number(2.0**-24),
    "checkpoint_every": integer(1),
    "keep": integer(1),
    "threads": integer(1),
    "timeout_s": number(1e-3),
    "stall_s": number(1e-3),
}
_CHOICES = {"schedule": SCHEDULES, "provider": PROVIDERS}


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
    given = {name: value for name, value in locals().items() if name not in ("plan", "data")}
    _check(given)
    _check_folder(Path(plan))
    if export is not None and model is None:
        raise UserError("--export: expected --model too")
    if checkpoint_every is not None and checkpoint is None:
        raise UserError("--checkpoint-every: expected --checkpoint DIR too")
    with tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        options = {**given, "log": log or Path(folder, "log.jsonl"), "data": _data(data, folder)}
        job = TrainJob(str(Path(plan)), **{name: _plain(value) for name, value in options.items()})
        result = _named(job, data)
        run = _run_of(result, Path(str(job.log)))
    if result.interrupted:
        raise TrainingInterrupted(run)
    return run


def run_job(job: TrainJob) -> TrainResult:
    """Train, and return how it went; raises :class:`UserError` for what stopped it."""
    result: TrainResult = start(job)
    if result.error is not None:
        kept = f" (the state before it is in {result.checkpoint})" if result.checkpoint else ""
        raise UserError(f"{result.plan}: {result.error}{kept}")
    return result


def _check(given: Mapping[str, Any]) -> None:
    """Refuse what the command line refuses, in its words."""
    for name, read in _BOUNDS.items():
        if given[name] is not None:
            try:
                read(str(given[name]))
            except argparse.ArgumentTypeError as error:
                raise UserError(f"argument {_flag(name)}: {error}") from None
            except ValueError:
                kind = getattr(read, "__name__", "number")
                text = f"argument {_flag(name)}: invalid {kind} value: '{given[name]}'"
                raise UserError(text) from None
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            near = did_you_mean(str(given[name]), choices)
            listed = ", ".join(map(repr, choices))
            raise UserError(
                f"argument {_flag(name)}: invalid choice: '{given[name]}' "
                f"(choose from {listed}){near}"
            )


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_s').replace('_', '-')}"


def _check_folder(folder: Path) -> None:
    if (folder / "family.json").is_file():
        raise UserError(
            f"{folder}: is a family of plans, expected one of them, such as {folder / '2'}, "
            f"and resume='{folder / 'initial.safetensors'}'"
        )


def _data(data: str | Path | Mapping[str, ArrayLike], folder: str) -> str | Path:
    if not isinstance(data, Mapping):
        return data
    path = Path(folder, "data.npz")
    np.savez(path, **{name: np.asarray(array) for name, array in data.items()})  # type: ignore[arg-type]
    return path


def _named(job: TrainJob, data: object) -> TrainResult:
    """Train; what is wrong with arrays is not said of the file that they went through."""
    try:
        return run_job(job)
    except UserError as error:
        if not isinstance(data, Mapping):
            raise
        raise UserError(str(error).replace(str(job.data), "data")) from None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _run_of(result: TrainResult, log: Path) -> TrainingRun:
    lines = log.read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines[len(lines) - result.steps :]]
    columns = [tuple(step[name] for step in steps) for name in ("loss", "time_s", "learning_rate")]
    return TrainingRun(result, *columns)
