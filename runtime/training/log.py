"""Reports on the steps of a run: the log file, the status line and the final figures."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.trainer import StepFacts

__all__ = ["Log", "check_log"]

_SHOW_S = 0.1


def check_log(path: Path) -> None:
    """Raise OSError if the log cannot be written; its content is unchanged."""
    with path.open("a", encoding="utf-8"):
        pass


class Log:
    """The steps of one run; without a ``link`` (on ranks other than 0) nothing is written.

    A run that resumes at step ``start`` appends to the log of the previous run, after removing the
    lines of later steps.
    """

    def __init__(
        self, job: TrainJob, plan: TrainingPlan, start: int, link: LauncherLink | None
    ) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.evaluated: float | None = None
        self._times: list[float] = []
        self._link, self._shown = link, 0.0
        self._end = start + job.steps
        self._samples = plan.samples_per_step
        is_written = link is not None and job.log is not None
        self._file = _open(Path(str(job.log)), start) if is_written else None

    def add(self, facts: StepFacts) -> None:
        """Record a step, and flush it to the log file."""
        loss = _finite(facts.loss)
        self.first = loss if self.first is None else self.first
        self.last = self.last if loss is None else loss
        self._times.append(facts.time_s)
        evaluated = _finite(facts.evaluation_loss)
        self.evaluated = self.evaluated if evaluated is None else evaluated
        if self._file is not None:
            self._write(self._file, json.dumps(_entry(facts)) + "\n")
        if self._link is not None and time.monotonic() >= self._shown:
            self._shown = time.monotonic() + _SHOW_S
            per_s = self._samples / facts.time_s
            text = "without a label" if facts.loss is None else f"loss {facts.loss:.6g}"
            if self.evaluated is not None:
                text += f", evaluation loss {self.evaluated:.6g}"
            self._link.show(
                f"step {facts.step} of {self._end}, {text}, "
                f"{facts.time_s * 1e3:.1f} ms, {per_s:.4g} samples/s"
            )

    def _write(self, file: IO[str], line: str) -> None:
        """Append a line; on failure, remove a partial line and raise `UserError`."""
        size = os.fstat(file.fileno()).st_size
        try:
            file.write(line)
            file.flush()
        except OSError as error:
            with suppress(OSError):  # a pipe has no size
                os.ftruncate(file.fileno(), size)
            self._file = None
            raise UserError(f"--log {file.name}: {cause_of(error)}") from None

    @property
    def median_s(self) -> float | None:
        """The median time of a step, in seconds, without the first step, a warm-up."""
        times = self._times[1:] or self._times
        return statistics.median(times) if times else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _entry(facts: StepFacts) -> dict[str, float | int | bool | str | None]:
    optional = {
        "loss_scale": facts.loss_scale,
        "skipped": True if facts.skipped else None,
        "not_finite": facts.not_finite,
        "evaluation_loss": _finite(facts.evaluation_loss),
    }
    entry = {
        "step": facts.step,
        "loss": _finite(facts.loss),
        "time_s": facts.time_s,
        "learning_rate": facts.learning_rate,
    }
    return {**entry, **{name: value for name, value in optional.items() if value is not None}}


def _finite(loss: float | None) -> float | None:
    """Return a loss for JSON, which has no NaN: None if it is not finite."""
    return loss if loss is not None and math.isfinite(loss) else None


def _open(path: Path, start: int) -> IO[str]:
    """Open the log without the lines of steps later than ``start``. Raises `UserError`."""
    kept: list[str] = []
    try:
        if start and path.is_file():
            with path.open(encoding="utf-8") as before:
                # A run that was killed may have left the beginning of a line.
                lines = [line for line in before if line.endswith("\n")]
            kept = [line for line in lines if _step_of(line) <= start]
        file = path.open("w", encoding="utf-8")
        file.writelines(kept)
        file.flush()
    except OSError as error:
        raise UserError(f"--log {path}: {cause_of(error)}") from None
    return file


def _step_of(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0  # a foreign line, which is retained
