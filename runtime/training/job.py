"""What the starting process asks of the ranks that train, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensoropt.runtime.support.expected import ExpectedErrorEntry
from tensoropt.runtime.support.job import Launched

__all__ = ["SCHEDULES", "TrainJob", "TrainResult"]

SCHEDULES = ("constant", "cosine", "linear")


@dataclass(frozen=True)
class TrainJob(Launched):
    """Train ``plan`` for ``steps`` steps on ``data``, as `open_dataset` takes it.

    ``shuffle`` is the seed of the order of the samples, None for the order of the source. The
    learning rate rises to ``learning_rate`` over ``warmup`` steps and then follows ``schedule``
    (one of `SCHEDULES`) until step ``total_steps``; None: the last step of this job. ``seed`` is
    that of dropout. ``loss_scale``: None lets it follow the gradients. A checkpoint is written to
    the folder ``checkpoint`` every ``checkpoint_every`` steps (None: only at the end), and the
    latest ``keep`` stay. ``resume`` is such a folder or a file of one. ``export`` takes ``model``
    with the trained weights; with no ``steps``, those of ``resume``.
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
    """How training went; ``step`` is the last one, counted from the start of the first run.

    ``held_bytes`` and ``predicted_bytes`` are per device, by what is held. ``peak_bytes``,
    ``used_bytes``, ``nodes_on_cpu`` and ``cuda_graphs`` are those of `CheckResult`, over both
    graphs. ``predicted_time_s`` is that of a step of one micro-batch on the device that the plan
    was made for. ``error`` says why training ended before its time; ``stop_signal`` is the
    signal that asked it to, or 0.
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
        """Return what JSON output holds."""
        facts = dict(vars(self))
        time_s = self.step_time_s
        per_step = self.samples / self.steps if self.steps else 0.0
        facts["samples_per_s"] = per_step / time_s if time_s else None
        return facts
