"""The newest whole snapshot of a job: what a crash goes back to without a disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tensoropt.elastic.coordinator.generations import Generation
from tensoropt.elastic.generation.messages import Message

__all__ = ["SnapshotBook"]


@dataclass
class SnapshotBook:
    """Keeps count of which ranks have written which slot, for which step.

    A snapshot is whole when every rank of its generation has written it. The one before it stays
    until then; that of an earlier generation until a later one has one.
    """

    generation: Generation | None = None
    slot: int = 0
    progress: dict[str, Any] | None = None
    _written: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)

    @property
    def step(self) -> int | None:
        """The step after which the newest one was taken, None where there is none."""
        return None if self.progress is None else int(self.progress["step"])

    def add(self, generation: Generation, rank: int, slot: int, progress: dict[str, Any]) -> bool:
        """Take down what a rank has written; says whether that makes a whole one."""
        steps = self._written.setdefault((generation.number, slot), {})
        steps[rank] = int(progress["step"])
        if len(steps) < generation.plan.devices or len(set(steps.values())) > 1:
            return False
        if self.generation is not None and self.generation is not generation:
            self.generation.drop_snapshots()
        self.generation, self.slot, self.progress = generation, slot, progress
        return True

    def forget_unless_newest(self, generation: Generation) -> None:
        """Let go of the snapshots of a generation that is over, unless they are the newest."""
        if self.generation is not generation:
            generation.drop_snapshots()

    def holders(self) -> Message:
        """Return where the newest one lies: this process holds it, whatever became of the ranks."""
        assert self.generation is not None
        ranks = [rank for _, rank in sorted(self.generation.ranks.items())]
        blocks = [
            {**rank.snapshots[self.slot].facts(), "pid": os.getpid(), "fd": rank.kept[self.slot]}
            for rank in ranks
        ]
        return {"plan": str(self.generation.plan.path), "blocks": blocks}
