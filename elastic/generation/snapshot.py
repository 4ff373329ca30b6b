"""Copies of a rank's state in memory, taken during training, for recovery after a crash."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from tensoropt.elastic.generation.channel import Channel
from tensoropt.elastic.generation.memory import StateMemory
from tensoropt.elastic.generation.places import arrays_in, stamp_in, stamped_size_of
from tensoropt.runtime.plan.graphs import UPDATE
from tensoropt.runtime.training.checkpoint import Progress
from tensoropt.runtime.training.state import Held

__all__ = ["Snapshots"]

_SLOTS = 2  # one is whole while the other is written
_PATIENCE_S = 10.0  # then train on without the coordinator's confirmation


class Snapshots:
    """Two blocks, written in turn unless the coordinator discards the snapshot in one of them;
    ``latest`` is the last whole snapshot, for `hello`.

    `begin` is called between steps, and `finish` before parameters change. In between, the next
    step computes its gradients; it changes no tensor that is still to be copied.
    """

    def __init__(self, held: Held, memory: StateMemory, channel: Channel) -> None:
        size = stamped_size_of(held.plan, held.rank)
        self.arenas = [memory.arena(f"snapshot{slot}", size) for slot in range(_SLOTS)]
        self._stamps = [stamp_in(arena.memory) for arena in self.arenas]
        self._copies = [arrays_in(arena.memory, held.plan, held.rank) for arena in self.arenas]
        self._early = [s.name for s in held.own if not s.graph.startswith(UPDATE)]
        self._late = [s.name for s in held.own if s.graph.startswith(UPDATE)]
        self._memory, self._channel, self._slot = memory, channel, 0
        self._pool = ThreadPoolExecutor(1)
        self._pending: tuple[Progress, Future[None]] | None = None
        self.latest: dict[str, Any] | None = None

    def begin(self, progress: Progress) -> None:
        """Start to copy the state, as of ``progress``, over the second latest snapshot.

        That one is needed for recovery until the coordinator has settled the latest one, so wait
        for that first, for at most `_PATIENCE_S`. It is still needed if the latest one could not be
        copied to other nodes; then replace the latest one.
        """
        if self.latest is not None:
            step = self.latest["progress"]["step"]
            if self._channel.wait_until_settled(step, _PATIENCE_S):
                self._slot = (self._slot + 1) % _SLOTS
            else:
                self.latest = None
        self._stamps[self._slot][0] = -1
        self._copy(self._slot, self._early)  # the next step changes these first
        self._pending = progress, self._pool.submit(self._copy, self._slot, self._late)

    @property
    def is_pending(self) -> bool:
        """True if a copy has been started and not finished."""
        return self._pending is not None

    def finish(self) -> None:
        """Wait for the copy that was started, if any, and report it to the coordinator."""
        if self._pending is None:
            return
        progress, copying = self._pending
        copying.result()
        self._pending = None
        self._stamps[self._slot][0] = progress.step
        self.latest = {"slot": self._slot, "progress": asdict(progress)}
        self._channel.send("snapshot", **self.latest)

    def _copy(self, slot: int, names: list[str]) -> None:
        self._memory.save(names, self._copies[slot])
