"""What a coordinator hears of steps that were taken while there was none."""

from __future__ import annotations

import secrets
import time

import pytest

from tensoropt.elastic.coordinator.listener import Listener
from tensoropt.elastic.generation.channel import Channel
from tensoropt.elastic.generation.reports import Reports
from tensoropt.runtime.training.checkpoint import Progress
from tensoropt.runtime.training.trainer import StepFacts

KEY = b"k" * 32
ALONE = 12_000  # steps


@pytest.mark.parametrize(("rank", "expected"), [(0, list(range(1, ALONE + 1))), (1, [ALONE])])
def test_a_new_coordinator_hears_of_every_step(rank, expected):
    address = f"@tensoropt-test-{secrets.token_hex(8)}"
    reports = Reports(rank)
    channel = Channel(address, KEY, lambda: {"kind": "hello", "steps": reports.recent()})
    _take(reports, channel, range(1, ALONE + 1))
    heard = []
    listener = Listener(address, KEY, lambda _, message: heard.append(message))
    try:
        channel.open()
        _await(lambda: heard and channel.lost_for_s() == 0)
    finally:
        listener.close()
    assert [row["step"] for row in heard[0]["steps"]] == expected
    _take(reports, channel, range(ALONE + 1, ALONE + 2))
    assert len(reports.recent()) < ALONE


def _take(reports, channel, steps):
    for step in steps:
        reports.add(StepFacts(step, 1.0, 1e-4, 0.1, own_s=1e-4), Progress(step), channel)


def _await(is_so):
    end = time.monotonic() + 10
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
