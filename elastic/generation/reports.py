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
# Steps that a new coordinator is told of. The one before had written all but those of its last
# half second; while there is none, steps that take 0.3 ms make 200,000 in the minute for which
# ranks go on by default, 45 MB as a message.
_KEPT, _KEPT_ALONE = 5000, 200_000

Row = dict[str, float | int | bool | None]


class Reports:
    """The steps of one rank. Rank 0 tells all there is to know, the others their own time."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._rows: deque[Row] = deque()
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
        self._keep(row, channel.lost_for_s() > 0)
        self._new.append(row)
        if time.monotonic() >= self._told_at + _EVERY_S:
            self.flush(channel)

    def flush(self, channel: Channel) -> None:
        """Tell all that is new."""
        if self._new:
            channel.tell("steps", steps=self._new)
            self._new, self._told_at = [], time.monotonic()

    def _keep(self, row: Row, is_alone: bool) -> None:
        most = (_KEPT_ALONE if is_alone else _KEPT) if self._rank == 0 else 1
        with self._lock:
            self._rows.append(row)
            while len(self._rows) > most:
                self._rows.popleft()
