"""A rank's reports of its steps: a few messages per second, independent of the step time."""

from __future__ import annotations

import threading
import time
from collections import deque

from tensoropt.elastic.generation.channel import Channel
from tensoropt.runtime.training.checkpoint import Progress
from tensoropt.runtime.training.trainer import StepFacts

__all__ = ["Reports"]

_EVERY_S = 0.1
# Steps that are repeated to a new coordinator. The previous one had written all but its last half
# second. Without a coordinator, ranks continue for a minute by default: steps of 0.3 ms make
# 200,000 rows, a message of 45 MB.
_KEPT, _KEPT_ALONE = 5000, 200_000

Row = dict[str, float | int | bool | str | None]


class Reports:
    """The steps of one rank. Rank 0 reports all figures, the other ranks only their own time."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._rows: deque[Row] = deque()
        self._new: list[Row] = []
        self._sent_at = 0.0
        self.last_loss: float | None = None

    def recent(self) -> list[Row]:
        """Return the last steps; thread-safe."""
        with self._lock:
            return list(self._rows)

    def add(self, facts: StepFacts, progress: Progress, channel: Channel) -> None:
        """Add a step, and send the new ones if the last message is `_EVERY_S` ago."""
        self.last_loss = facts.loss
        row: Row = {"step": facts.step, "own_s": facts.own_s, "end_at": time.monotonic()}
        if self._rank == 0:
            row |= {
                "loss": facts.loss,
                "time_s": facts.time_s,
                "learning_rate": facts.learning_rate,
                "loss_scale": facts.loss_scale,
                "skipped": facts.skipped,
                "not_finite": facts.not_finite,
                "evaluation_loss": facts.evaluation_loss,
                "samples": progress.samples,
            }
        self._keep(row, channel.lost_for_s() > 0)
        self._new.append(row)
        if time.monotonic() >= self._sent_at + _EVERY_S:
            self.flush(channel)

    def flush(self, channel: Channel) -> None:
        """Send all new steps."""
        if self._new:
            channel.send("steps", steps=self._new)
            self._new, self._sent_at = [], time.monotonic()

    def _keep(self, row: Row, is_alone: bool) -> None:
        most = (_KEPT_ALONE if is_alone else _KEPT) if self._rank == 0 else 1
        with self._lock:
            self._rows.append(row)
            while len(self._rows) > most:
                self._rows.popleft()
