"""The time limit of a request, as a rank watches it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensoropt.runtime.ops import library
from tensoropt.runtime.pool.limit import RequestLimit

SECONDS = 1.0


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> tuple[RequestLimit, list[str]]:
    monkeypatch.setattr(library, "watch", lambda: None)
    monkeypatch.setattr(library, "ask", lambda seconds: {})
    found: list[str] = []
    comm = SimpleNamespace(rank=0, size=1)
    return RequestLimit(SECONDS, comm, found.append), found  # type: ignore[arg-type]


def test_the_limit_is_extended(ended: tuple[RequestLimit, list[str]]) -> None:
    limit, found = ended
    with limit.counting():
        for _ in range(5):
            time.sleep(SECONDS / 4)
            limit.extend()
    assert found == []
    time.sleep(1.2 * SECONDS)  # nothing counts any more
    assert found == []


def test_it_passes(ended: tuple[RequestLimit, list[str]]) -> None:
    limit, found = ended
    with limit.counting():
        time.sleep(2 * SECONDS)
    assert found == ["no answer within 1 s: rank 0 of 1 does not answer"]


def test_requests_do_not_wake_who_watches(ended: tuple[RequestLimit, list[str]]) -> None:
    limit, _ = ended
    watcher = Path(f"/proc/self/task/{threading.enumerate()[-1].native_id}/status")

    def sleeps() -> int:
        """Return how often the system has put the thread to sleep."""
        facts = dict(line.split(":", 1) for line in watcher.read_text().splitlines())
        return int(facts["voluntary_ctxt_switches"])

    time.sleep(SECONDS / 10)  # until it sleeps
    before = sleeps()
    for _ in range(100):
        with limit.counting():
            time.sleep(SECONDS / 10000)
    assert sleeps() - before <= 1
