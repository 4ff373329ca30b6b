"""Which of a rank's two snapshots the next one replaces."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest
from cuda_states import plan_of
from waiting import wait_until

from tensoropt.elastic.coordinator.listener import Listener
from tensoropt.elastic.generation.channel import Channel
from tensoropt.elastic.generation.on_host import HostMemory
from tensoropt.elastic.generation.places import stamp_in
from tensoropt.elastic.generation.snapshot import Snapshots
from tensoropt.runtime.layout.mesh_layout import parse_layout
from tensoropt.runtime.support.messages import send
from tensoropt.runtime.training.checkpoint import Progress

KEY = b"k" * 32


class Coordinator:
    """Hears one rank, and answers each of its snapshots with the next of ``answers``."""

    def __init__(self, answers: Iterator[bool]) -> None:
        self._answers = answers
        self.address = f"@tensoropt-test-{secrets.token_hex(8)}"
        self.listener = Listener(self.address, KEY, self._hear)

    def _hear(self, connection: Connection, message: dict | None) -> None:
        if message is not None and message["kind"] == "snapshot":
            step = message["progress"]["step"]
            answer = {"kind": "settled", "step": step, "is_kept": next(self._answers)}
            send(connection, answer)


@pytest.mark.parametrize(
    ("answers", "slots"),
    [
        ([True, True, True], [0, 1, 0, 1]),
        ([True, False, False, True, True], [0, 1, 1, 1, 0, 1]),
        ([False, True], [0, 0, 1]),
    ],
)
def test_a_snapshot_that_was_discarded_is_replaced(answers: list[bool], slots: list[int]):
    coordinator = Coordinator(iter([*answers, True]))
    channel = Channel(coordinator.address, KEY, lambda: {"kind": "hello"})
    channel.open()
    plan = plan_of((8, 4), parse_layout(["R"], [1]))
    memory = HostMemory(plan, 0)
    own = [SimpleNamespace(name=state.name, graph="step") for state in plan.state]
    held = SimpleNamespace(plan=plan, rank=0, own=own)
    snapshots = Snapshots(held, memory, channel)
    try:
        wait_until(lambda: channel.lost_for_s() == 0, 10.0, "no connection")
        for step, slot in enumerate(slots, 1):
            stamps = _stamps(snapshots)
            snapshots.begin(Progress(step))
            snapshots.finish()
            assert snapshots.latest == {"slot": slot, "progress": vars(Progress(step))}
            stamps[slot] = step
            assert _stamps(snapshots) == stamps
    finally:
        coordinator.listener.close()
        for block in (memory.block(), *(arena.block for arena in snapshots.arenas)):
            os.close(block.fd)


def _stamps(snapshots: Snapshots) -> list[int]:
    return [int(stamp_in(arena.memory)[0]) for arena in snapshots.arenas]
