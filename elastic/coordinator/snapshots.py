"""The newest complete snapshot of a job, for recovery from a crash without a disk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tensoropt.elastic.coordinator.generations import Generation
from tensoropt.elastic.engines.engine import Engine
from tensoropt.elastic.generation.parts import Parts

__all__ = ["Snapshot", "SnapshotBook"]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that all ranks of a generation have written, taken after ``progress``."""

    generation: Generation
    progress: dict[str, Any]
    parts: Parts


@dataclass
class SnapshotBook:
    """Tracks the last snapshot of each rank: its slot and step.

    A snapshot is complete when every rank of its generation has written it. It becomes the newest
    once it is spread over nodes; until then the previous one, possibly of an earlier generation, is
    retained.
    """

    engine: Engine
    newest: Snapshot | None = None
    _written: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    _spreading: list[Generation] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """The step after which the newest snapshot was taken, None without a snapshot."""
        return None if self.newest is None else int(self.newest.progress["step"])

    def add(
        self, generation: Generation, rank: int, slot: int, progress: dict[str, Any]
    ) -> Snapshot | None:
        """Record a rank's write; return the snapshot that it completes, if any.

        The caller spreads that snapshot and then passes it to `keep`.
        """
        written, step = self._written.setdefault(generation.number, {}), int(progress["step"])
        written[rank] = slot, step
        steps = {step for _, step in written.values()}
        if len(written) < generation.plan.devices or len(steps) > 1:
            return None
        self._spreading.append(generation)
        slots = [slot for _, (slot, _) in sorted(written.items())]
        return Snapshot(generation, progress, generation.snapshot(slots, step))

    def keep(self, snapshot: Snapshot, parts: Parts | None) -> bool:
        """Make a snapshot the newest after spreading; ``parts`` is None if spreading failed.

        Returns whether it became the newest.
        """
        generation, before = snapshot.generation, self.newest
        self._spreading.remove(generation)
        step = snapshot.progress["step"]
        is_kept = parts is not None and (before is None or before.progress["step"] <= step)
        if parts is None or not is_kept:
            self._drop_copies(parts)
        else:
            self.newest = replace(snapshot, parts=parts)
            if before is not None:
                self._drop_copies(before.parts)
                self.forget_unless_newest(before.generation)
        if generation.is_over:
            self.forget_unless_newest(generation)
        return is_kept

    def _drop_copies(self, parts: Parts | None) -> None:
        if parts is not None:
            self.engine.drop(parts.copies.values())

    def forget(self) -> None:
        """Release the newest snapshot, which can no longer be read."""
        lost, self.newest = self.newest, None
        if lost is not None:
            self._drop_copies(lost.parts)
            if lost.generation.is_over:
                self.forget_unless_newest(lost.generation)

    def forget_unless_newest(self, generation: Generation) -> None:
        """Release the snapshots of an ended generation, unless one is or may become the newest."""
        newest = self.newest is not None and self.newest.generation is generation
        if not newest and generation not in self._spreading:
            generation.drop_snapshots()
