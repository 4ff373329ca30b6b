"""What a coordinator knows of a generation: its ranks, and how far each of them is."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tensoropt.elastic.control import RankStatus
from tensoropt.elastic.engines.engine import Host
from tensoropt.elastic.family.family import FamilyPlan
from tensoropt.elastic.generation.arena import Block, held_open
from tensoropt.elastic.generation.messages import Message, send

__all__ = ["Generation", "Rank"]

_OWN_TIMES = 20  # steps whose own times count


@dataclass
class Rank:
    """A rank that has said hello; ``kept`` are descriptors of its snapshots, which outlive it."""

    number: int
    connection: Connection
    pid: int
    phase: str
    block: Block
    snapshots: list[Block]
    kept: list[int]
    own_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=_OWN_TIMES))
    moved_bytes: int = 0
    take_s: float = 0.0

    @classmethod
    def of(cls, hello: Message, connection: Connection) -> Rank:
        """Return the rank that says ``hello``; raises OSError where it has gone already."""
        blocks = [Block(**facts) for facts in hello["snapshots"]]
        return cls(
            hello["rank"],
            connection,
            hello["pid"],
            hello["phase"],
            Block(**hello["block"]),
            blocks,
            [held_open(block) for block in blocks],
        )

    def drop_snapshots(self) -> None:
        """Let go of the rank's snapshots, whose memory goes with the last who holds it."""
        while self.kept:
            os.close(self.kept.pop())


@dataclass
class Generation:
    """The ranks of one plan, of which ``ranks`` have connected."""

    number: int
    plan: FamilyPlan
    devices: tuple[str, ...]
    host: Host
    started_at: float = field(default_factory=time.monotonic)
    ranks: dict[int, Rank] = field(default_factory=dict)
    progress: dict[str, Any] | None = None
    mapped_at: float | None = None
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

    def ask(self, what: int) -> None:
        """Have the ranks agree on ``what`` with their next step."""
        self.tell(0, {"kind": "ask", "what": what})

    def holders(self) -> Message:
        """Return where the state of all ranks lies."""
        blocks = [self.ranks[number].block.facts() for number in sorted(self.ranks)]
        return {"plan": str(self.plan.path), "blocks": blocks}

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

    def close(self) -> None:
        """Let go of the connections."""
        for rank in self.ranks.values():
            with suppress(OSError):
                rank.connection.close()

    def drop_snapshots(self) -> None:
        """Let go of the snapshots of all ranks."""
        for rank in self.ranks.values():
            rank.drop_snapshots()
