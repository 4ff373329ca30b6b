"""Training jobs that the launching process passes to the ranks, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensoropt.runtime.support.expected import ExpectedErrorEntry
from tensoropt.runtime.support.job import Launched

__all__ = ["SCHEDULES", "TrainJob", "TrainResult"]

SCHEDULES = ("constant", "cosine", "linear")


@dataclass(frozen=True)
class TrainJob(Launched):
    """Training of ``plan`` for ``steps`` steps on ``data``, a place for `open_dataset`.

    ``shuffle`` is the seed for the order of the samples, None for the order of the source. The
    learning rate rises to ``learning_rate`` over ``warmup`` steps and then follows ``schedule``
    (one of `SCHEDULES`) until step ``total_steps``; None: the last step of this job. ``seed`` is
    the seed of dropout. ``loss_scale``: None adapts it to the gradients. A checkpoint is written to
    the folder ``checkpoint`` every ``checkpoint_every`` steps (None: only at the end), and the
    latest ``keep`` are retained. ``resume`` is a folder of checkpoints or a checkpoint. ``export``
    is the path for ``model`` with the trained weights, or without ``steps`` the weights of
    ``resume``.
    """

    kind = "train"
    plan: str
    steps: int = 0
    data: str | None = None
    shuffle: int | None = None
    log: str | None = None
    learning_rate: float = 1e-3
    warmup: int = 0
    schedule: str = "constant"
    total_steps: int | None = None
    seed: int = 0
    loss_scale: float | None = None
    checkpoint: str | None = None
    checkpoint_every: int | None = None
    keep: int = 2
    resume: str | None = None
    export: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class TrainResult:
    """Result of training; ``step`` is the last step, counted from the start of the first run.

    ``held_bytes`` and ``predicted_bytes`` are the static memory per device, by kind.
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
