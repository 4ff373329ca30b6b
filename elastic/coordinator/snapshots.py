"""The newest whole snapshot of a job: what a crash goes back to without a disk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tensoropt.elastic.coordinator.generations import Generation
from tensoropt.elastic.engines.engine import Engine
from tensoropt.elastic.generation.parts import Parts

__all__ = ["Snapshot", "SnapshotBook"]


@dataclass(frozen=True)
class Snapshot:
    """What all ranks of a generation have written; ``progress`` is what it was taken after."""

    generation: Generation
    progress: dict[str, Any]
    parts: Parts


@dataclass
class SnapshotBook:
    """Keeps count of which ranks have written which slot, for which step.

    A snapshot is whole when every rank of its generation has written it, and kept once it is
    spread. The one before it stays until then; that of an earlier generation until a later one has
    one.
    """

    engine: Engine
    newest: Snapshot | None = None
    _written: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    _spreading: list[Generation] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """The step after which the newest one was taken, None where there is none."""
        return None if self.newest is None else int(self.newest.progress["step"])

    def add(
        self, generation: Generation, rank: int, slot: int, progress: dict[str, Any]
    ) -> Snapshot | None:
        """Take down what a rank has written; returns the snapshot that is whole now, if one is.

        It is to be spread, and then given to `keep`.
        """
        steps, step = self._written.setdefault((generation.number, slot), {}), int(progress["step"])
        steps[rank] = step
        if len(steps) < generation.plan.devices or len(set(steps.values())) > 1:
            return None
        self._spreading.append(generation)
        return Snapshot(generation, progress, generation.snapshot(slot, step))

    def keep(self, snapshot: Snapshot, parts: Parts | None) -> None:
        """Have a snapshot that was spread be the newest; None where that did not work."""
        generation, before = snapshot.generation, self.newest
        self._spreading.remove(generation)
        step = snapshot.progress["step"]
        if parts is None or (before is not None and before.progress["step"] > step):
            self._drop_copies(parts)
        else:
            self.newest = replace(snapshot, parts=parts)
            if before is not None:
                self._drop_copies(before.parts)
                self.forget_unless_newest(before.generation)
        if generation.is_over:
            self.forget_unless_newest(generation)

    def _drop_copies(self, parts: Parts | None) -> None:
        if parts is not None:
            self.engine.drop(parts.copies.values())

    def forget(self) -> None:
        """Let go of the newest one, which cannot be read any more."""
        lost, self.newest = self.newest, None
        if lost is not None:
            self._drop_copies(lost.parts)
            if lost.generation.is_over:
                self.forget_unless_newest(lost.generation)

    def forget_unless_newest(self, generation: Generation) -> None:
        """Let go of the snapshots of a generation that is over, unless they may be the newest."""
        newest = self.newest is not None and self.newest.generation is generation
        if not newest and generation not in self._spreading:
            generation.drop_snapshots()
