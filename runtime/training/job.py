"""Training jobs that the launching process passes to the ranks, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

from tensoropt.runtime.support.expected import ExpectedErrorEntry
from tensoropt.runtime.support.job import Launched
from tensoropt.runtime.support.kinds import SWITCH, choice, integer, number, path
from tensoropt.runtime.support.options import option
from tensoropt.runtime.support.places import FORMS, INPUT, Folder, Input, Output
from tensoropt.runtime.support.rank_options import RankArguments

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["TrainArguments", "TrainJob", "TrainResult"]


_SAMPLES = path(Input(separators=":"))


@dataclass(frozen=True)
class TrainJob(Launched):
    """Training of ``plan`` for ``steps`` steps on ``data``, a place for `open_dataset`.

    The loss on ``evaluate_data`` is computed every ``evaluate_every`` steps, and after the last.
    ``shuffle`` is the seed for the order of the samples, None for the order of the source. The
    learning rate rises to ``learning_rate`` over ``warmup`` steps and then follows ``schedule``,
    which falls to ``min_learning_rate``, until step ``total_steps``; None: the last step of this
    job. ``seed`` is the seed of dropout.
    ``loss_scale``: None adapts it to the gradients. With ``skip_not_finite``, a step with a loss or
    a gradient that is not finite changes nothing, and training goes on. A checkpoint is written to
    the folder ``checkpoint`` every ``checkpoint_every`` steps (None: only at the end), and the
    latest ``keep`` are retained. ``resume`` is a folder of checkpoints or a checkpoint. ``export``
    is the path for ``model`` with the trained weights, or without ``steps`` the weights of
    ``resume``.
    """

    kind = "train"
    plan: str
    data: str | None = option(
        None,
        _SAMPLES,
        ".npz, .parquet, .arrow or .feather file, or folder of them, with every input and label by "
        "name; or samples from Python, module:factory or FILE.py:factory",
        "SOURCE",
    )
    evaluate_data: str | None = option(
        None, _SAMPLES, "evaluate the loss on these data, which are not trained on", "SOURCE"
    )
    evaluate_every: int | None = option(
        None, integer(1), "every N steps, and after the last (default: after the last)", "N"
    )
    steps: int = option(0, integer(0), "train for N more steps", "N")
    log: str | None = option(
        None,
        path(Output(form=FORMS["log"])),
        "one object per step: step, loss, time_s, learning_rate",
        "JSONL",
    )
    shuffle: int | None = option(None, integer(0), "draw the order of samples from seed K", "K")
    learning_rate: float = option(
        1e-3, number(0.0), "highest learning rate (default %(default)s)", "X"
    )
    warmup: int = option(0, integer(0), "steps to the highest rate", "N")
    schedule: str = option(
        "constant",
        choice("constant", "cosine", "linear"),
        "rate after warmup (default %(default)s)",
    )
    min_learning_rate: float = option(
        0.0, number(0.0), "rate at the end of cosine and linear (default %(default)s)", "X"
    )
    total_steps: int | None = option(
        None,
        integer(1),
        "step at which the schedule ends (default: the last step of this run)",
        "N",
    )
    seed: int = option(0, integer(0), "seed of dropout (default %(default)s)", "K")
    loss_scale: float | None = option(
        None,
        number(2.0**-24),
        "fixed loss scale of a float16 plan (default: dynamic, from 65536)",
        "X",
    )
    skip_not_finite: bool = option(
        False, SWITCH, "skip steps with a loss or gradients that are not finite"
    )
    checkpoint: str | None = option(
        None,
        path(Output(folder=Folder.FILLED, extends=("resume",))),
        "write a checkpoint (safetensors) to DIR at the end",
        "DIR",
    )
    checkpoint_every: int | None = option(None, integer(1), "and one every N steps", "N")
    keep: int = option(2, integer(1), "checkpoints to keep (default %(default)s)", "K")
    resume: str | None = option(
        None, path(INPUT), "resume from a checkpoint, or from the latest in a folder", "PATH"
    )
    export: str | None = option(
        None,
        path(Output(form=FORMS["onnx"], aside=".data")),
        "write --model with the trained weights; without --train, with the weights of --resume",
        "ONNX",
    )
    model: str | None = option(
        None, path(INPUT), "the model that the plan was compiled from", "ONNX"
    )


class TrainArguments(RankArguments, total=False):
    """Options of `TrainJob` other than data and steps, as keyword arguments."""

    timeout_s: float | None
    evaluate_data: str | PathLike[str] | Mapping[str, ArrayLike] | None
    evaluate_every: int | None
    log: str | PathLike[str] | None
    shuffle: int | None
    learning_rate: float
    warmup: int
    schedule: str
    min_learning_rate: float
    total_steps: int | None
    seed: int
    loss_scale: float | None
    skip_not_finite: bool
    checkpoint: str | PathLike[str] | None
    checkpoint_every: int | None
    keep: int
    resume: str | PathLike[str] | None
    export: str | PathLike[str] | None
    model: str | PathLike[str] | None


@dataclass(frozen=True)
class TrainResult:
    """Result of training; ``step`` is the last step, counted from the start of the first run.

    ``held_bytes`` and ``predicted_bytes`` are the static memory per device, by kind.
    ``evaluation_loss`` is the last one on held-out data.
    ``peak_bytes``, ``used_bytes``, ``nodes_on_cpu`` and ``cuda_graphs`` are defined as in
    `CheckResult`, over both graphs. ``predicted_time_s`` is the time of a step with one micro-batch
    on the plan's own device. ``error`` is the reason if training ended early, and ``stop_signal``
    the signal that requested the end, or 0.
    """

    plan: str
    ranks: int
    mesh: list[int]
    step: int
    steps: int
    samples: int
    skipped: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    evaluation_loss: float | None = None
    step_time_s: float | None = None
    held_bytes: dict[str, int] = field(default_factory=dict)
    predicted_bytes: dict[str, int] = field(default_factory=dict)
    peak_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    provider: str = "cpu"
    predicted_time_s: float | None = None
    expected_error: ExpectedErrorEntry | None = None
    used_bytes: int | None = None
    nodes_on_cpu: int | None = None
    cuda_graphs: str | None = None
    checkpoint: str | None = None
    export: str | None = None
    stop_signal: int = 0
    error: str | None = None

    def facts(self) -> dict[str, object]:
        """Return the fields of the JSON output."""
        facts = dict(vars(self))
        time_s = self.step_time_s
        per_step = self.samples / self.steps if self.steps else 0.0
        facts["samples_per_s"] = per_step / time_s if time_s else None
        return facts
