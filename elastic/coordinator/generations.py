"""The coordinator's record of a generation: its ranks and their phases."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, get_args

from tensoropt.elastic.control import RankStatus
from tensoropt.elastic.engines.engine import Carrier, Engine, Host
from tensoropt.elastic.generation.clock import seconds_ahead
from tensoropt.elastic.generation.memory import Way
from tensoropt.elastic.generation.parts import Part, Parts
from tensoropt.runtime.family.family import FamilyPlan
from tensoropt.runtime.support.arena import Block
from tensoropt.runtime.support.messages import Message, send

__all__ = ["Generation", "Rank"]

_OWN_TIMES = 20  # last steps in the median of a rank's own time


@dataclass
class Rank:
    """A rank that has connected; ``snapshots`` are its snapshots, which outlive it.

    This process's clock is ``ahead_s`` seconds ahead of the rank's. ``damage`` is the error of the
    last file that it was ordered to load.
    """

    number: int
    connection: Connection
    pid: int
    phase: str
    part: Part
    snapshots: list[Part]
    engine: Engine
    ahead_s: float
    own_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=_OWN_TIMES))
    moved_bytes: int = 0
    moved_by: Way = "memory"
    why_not_device: str | None = None
    damage: str | None = None

    @classmethod
    def from_hello(cls, hello: Message, connection: Connection, engine: Engine) -> Rank:
        """Return the rank that sent ``hello``. Raises OSError if it has ended already."""
        node = hello["node"]
        snapshots = [Part(Block(**facts), node) for facts in hello["snapshots"]]
        return cls(
            hello["rank"],
            connection,
            hello["pid"],
            hello["phase"],
            Part(Block(**hello["block"]), node),
            engine.hold(snapshots),
            engine,
            seconds_ahead(hello["clock"]),
        )

    def drop_snapshots(self) -> None:
        """Release the rank's snapshots; the last holder's release frees their memory."""
        self.engine.drop(self.snapshots)
        self.snapshots = []


@dataclass(eq=False)
class Generation:
    """The ranks of one plan; ``ranks`` has those that have connected."""

    number: int
    plan: FamilyPlan
    devices: tuple[str, ...]
    host: Host
    started_at: float = field(default_factory=time.monotonic)
    ranks: dict[int, Rank] = field(default_factory=dict)
    progress: dict[str, Any] | None = None
    carrier: Carrier | None = None
    is_over: bool = False

    def all_in(self, *phases: str) -> bool:
        """Return whether every rank has connected and is in one of ``phases``."""
        found = [rank.phase for rank in self.ranks.values()]
        return len(found) == self.plan.devices and all(phase in phases for phase in found)

    def send(self, rank: int, message: Message) -> None:
        """Send a message to one rank; ignore a dead one, as its end is reported elsewhere."""
        with suppress(OSError, KeyError):
            send(self.ranks[rank].connection, message)

    def send_all(self, message: Message) -> None:
        for rank in sorted(self.ranks):
            self.send(rank, message)

    def end(self) -> None:
        """Kill its processes, on a thread, because that takes a while."""
        threading.Thread(target=self.host.kill, daemon=True).start()

    def ask(self, request: int) -> None:
        """Have the ranks agree on ``request`` with their next step."""
        self.send(0, {"kind": "ask", "what": request})

    def send_take_orders(self, kind: str, **facts: Any) -> None:
        """Send each rank the places of the parts of the state that it takes."""
        assert self.carrier is not None
        for rank, order in enumerate(self.carrier.orders):
            self.send(rank, {"kind": kind, **order, **facts})

    def nodes(self) -> list[str]:
        """Return the node of each rank."""
        return [rank.part.node for _, rank in sorted(self.ranks.items())]

    def parts(self) -> Parts:
        """Return the parts of the ranks' state."""
        ranks = [rank for _, rank in sorted(self.ranks.items())]
        return Parts(str(self.plan.path), tuple(rank.part for rank in ranks))

    def snapshot(self, slots: Sequence[int], step: int) -> Parts:
        """Return the parts of the snapshot in each rank's slot, taken after ``step``."""
        ranks = [rank for _, rank in sorted(self.ranks.items())]
        parts = tuple(rank.snapshots[slot] for rank, slot in zip(ranks, slots, strict=True))
        return Parts(str(self.plan.path), parts, step=step)

    def moved_by(self) -> Way:
        """Return the path by which state reaches the ranks: the slowest path of any rank."""
        found: tuple[Way, ...] = get_args(Way)
        return max((rank.moved_by for rank in self.ranks.values()), key=found.index)

    def why_not_device(self) -> str | None:
        """Return why device state is moved through host memory, None if it is not."""
        ranks = sorted(self.ranks.items())
        found = [f"rank {n}: {r.why_not_device}" for n, r in ranks if r.why_not_device]
        return found[0] if found else None

    def statuses(self) -> tuple[RankStatus, ...]:
        """Return the ranks' status, in order of rank."""
        return tuple(
            RankStatus(
                number,
                self.devices[number],
                rank.pid,
                statistics.median(rank.own_times_s) if rank.own_times_s else None,
            )
            for number, rank in sorted(self.ranks.items())
        )

    def failure_text(self, why: str) -> str:
        """Return the message of the generation's failure."""
        return f"generation {self.number} ({self.plan.devices} devices) failed: {why}"

    def drop_carrier(self) -> None:
        """Release the state that was carried for this generation."""
        if self.carrier is not None:
            self.carrier.close()
        self.carrier = None

    def close(self) -> None:
        """Close the connections."""
        for rank in self.ranks.values():
            with suppress(OSError):
                rank.connection.close()

    def drop_snapshots(self) -> None:
        """Release the snapshots of all ranks."""
        for rank in self.ranks.values():
            rank.drop_snapshots()
