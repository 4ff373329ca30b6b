"""The job of one generation's ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensoropt.runtime.training.job import TrainJob

__all__ = ["GenerationJob"]


@dataclass(frozen=True)
class GenerationJob(TrainJob):
    """A job that trains one plan of a family until step ``steps`` or the next generation.

    The ranks connect to the coordinator at ``address`` and authenticate with ``key``. They write a
    checkpoint and end after ``grace_s`` seconds without a coordinator. Every ``snapshot_every``
    steps they copy their state in memory (None: never). Checkpoints are written as by `TrainJob`.
    ``resume`` is unused: the coordinator chooses the state to start from.
    """

    kind = "generation"
    generation: int = 0
    address: str = ""
    key: str = field(default="", repr=False)
    grace_s: float = 60.0
    snapshot_every: int | None = None
