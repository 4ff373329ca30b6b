"""What the coordinator asks of the ranks of one generation."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensoropt.runtime.training.job import TrainJob

__all__ = ["GenerationJob"]


@dataclass(frozen=True)
class GenerationJob(TrainJob):
    """Train one plan of a family until step ``steps``, or until another generation goes on.

    The ranks meet the coordinator at ``address``, with ``key`` to prove that they are the job's.
    Without it for ``grace_s`` seconds they end, after a checkpoint. Every ``snapshot_every`` steps
    they copy their state beside it, None: never. The checkpoints are `TrainJob`'s; ``resume`` is
    not used: the coordinator says what to go on from.
    """

    kind = "generation"
    generation: int = 0
    address: str = ""
    key: str = field(default="", repr=False)
    grace_s: float = 60.0
    snapshot_every: int | None = None
