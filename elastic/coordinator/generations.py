"""What a coordinator knows of a generation: its ranks, and how far each of them is."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
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

_OWN_TIMES = 20  # steps whose own times count


@dataclass
class Rank:
    """A rank that has said hello; ``kept`` are its snapshots, which outlive it.

    This process's clock is ``ahead_s`` of the rank's. ``damage`` is an error of the last file that
    it was told to load.
    """

    number: int
    connection: Connection
    pid: int
    phase: str
    part: Part
    kept: list[Part]
    engine: Engine
    ahead_s: float
    own_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=_OWN_TIMES))
    moved_bytes: int = 0
    moved_by: Way = "memory"
    why_not_device: str | None = None
    damage: str | None = None

    @classmethod
    def of(cls, hello: Message, connection: Connection, engine: Engine) -> Rank:
        """Return the rank that says ``hello``; raises OSError where it has gone already."""
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
        """Let go of the rank's snapshots, whose memory goes with the last who holds it."""
        self.engine.drop(self.kept)
        self.kept = []


@dataclass(eq=False)
class Generation:
    """The ranks of one plan, of which ``ranks`` have connected."""

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
        """Say whether every rank is there and in one of ``phases``."""
        found = [rank.phase for rank in self.ranks.values()]
        return len(found) == self.plan.devices and all(phase in phases for phase in found)

    def tell(self, rank: int, message: Message) -> None:
        """Send a message to one rank; one that has gone is found out elsewhere."""
        with suppress(OSError, KeyError):
            send(self.ranks[rank].connection, message)

    def tell_all(self, message: Message) -> None:
        for rank in sorted(self.ranks):
            self.tell(rank, message)

    def end(self) -> None:
        """Kill its processes, in a thread: that takes a while."""
        threading.Thread(target=self.host.kill, daemon=True).start()

    def ask(self, what: int) -> None:
        """Have the ranks agree on ``what`` with their next step."""
        self.tell(0, {"kind": "ask", "what": what})

    def tell_to_take(self, kind: str, **facts: Any) -> None:
        """Tell each rank where what it takes of a state lies."""
        assert self.carrier is not None
        for rank, order in enumerate(self.carrier.orders):
            self.tell(rank, {"kind": kind, **order, **facts})

    def nodes(self) -> list[str]:
        """Return the node of each rank."""
        return [rank.part.node for _, rank in sorted(self.ranks.items())]

    def parts(self) -> Parts:
        """Return where the state of all ranks lies."""
        ranks = [rank for _, rank in sorted(self.ranks.items())]
        return Parts(str(self.plan.path), tuple(rank.part for rank in ranks))

    def snapshot(self, slot: int, step: int) -> Parts:
        """Return where their snapshots in a slot lie, taken after ``step``."""
        ranks = [rank for _, rank in sorted(self.ranks.items())]
        parts = tuple(rank.kept[slot] for rank in ranks)
        return Parts(str(self.plan.path), parts, step=step)

    def moved_by(self) -> Way:
        """Return how state comes to the ranks: the longest way of any of them."""
        found: tuple[Way, ...] = get_args(Way)
        return max((rank.moved_by for rank in self.ranks.values()), key=found.index)

    def why_not_device(self) -> str | None:
        """Return why state on a device is moved by the host's memory, None where it is not."""
        ranks = sorted(self.ranks.items())
        found = [f"rank {n}: {r.why_not_device}" for n, r in ranks if r.why_not_device]
        return found[0] if found else None

    def statuses(self) -> tuple[RankStatus, ...]:
        """Return what is known of the ranks, in their order."""
        return tuple(
            RankStatus(
                number,
                self.devices[number],
                rank.pid,
                statistics.median(rank.own_times_s) if rank.own_times_s else None,
            )
            for number, rank in sorted(self.ranks.items())
        )

    def failed(self, why: str) -> str:
        """Return that it failed, in words."""
        return f"generation {self.number} ({self.plan.devices} devices) failed: {why}"

    def drop_carrier(self) -> None:
        """Let go of the state that was brought for this generation."""
        if self.carrier is not None:
            self.carrier.close()
        self.carrier = None

    def close(self) -> None:
        """Let go of the connections."""
        for rank in self.ranks.values():
            with suppress(OSError):
                rank.connection.close()

    def drop_snapshots(self) -> None:
        """Let go of the snapshots of all ranks."""
        for rank in self.ranks.values():
            rank.drop_snapshots()
