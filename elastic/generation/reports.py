"""What a rank tells of its steps: a few messages a second, whatever a step takes."""

from __future__ import annotations

import threading
import time
from collections import deque

from tensoropt.elastic.generation.channel import Channel
from tensoropt.runtime.training.checkpoint import Progress
from tensoropt.runtime.training.trainer import StepFacts

__all__ = ["Reports"]

_EVERY_S = 0.1
_KEPT = 5000  # steps that a coordinator is told that was away meanwhile

Row = dict[str, float | int | bool | None]


class Reports:
    """The steps of one rank. Rank 0 tells all there is to know, the others their own time."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._rows: deque[Row] = deque(maxlen=_KEPT if rank == 0 else 1)
        self._new: list[Row] = []
        self._told_at = 0.0
        self.last_loss: float | None = None

    def recent(self) -> list[Row]:
        """Return the steps taken last; from any thread."""
        with self._lock:
            return list(self._rows)

    def add(self, facts: StepFacts, progress: Progress, channel: Channel) -> None:
        """Take a step down, and tell what is new if that is long ago."""
        self.last_loss = facts.loss
        row: Row = {"step": facts.step, "own_s": facts.own_s, "end_at": time.monotonic()}
        if self._rank == 0:
            row |= {
                "loss": facts.loss,
                "time_s": facts.time_s,
                "learning_rate": facts.learning_rate,
                "loss_scale": facts.loss_scale,
                "skipped": facts.skipped,
                "samples": progress.samples,
            }
        with self._lock:
            self._rows.append(row)
        self._new.append(row)
        if time.monotonic() >= self._told_at + _EVERY_S:
            self.flush(channel)

    def flush(self, channel: Channel) -> None:
        """Tell all that is new."""
        if self._new:
            channel.tell("steps", steps=self._new)
            self._new, self._told_at = [], time.monotonic()
