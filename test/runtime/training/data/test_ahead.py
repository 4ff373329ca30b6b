"""Batches that are read while others are computed."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data.ahead import Ahead


class Reader:
    def __init__(self, bad: int | None = None) -> None:
        self.read: list[int] = []
        self.threads: set[int] = set()
        self.bad = bad

    def __call__(self, position: int) -> dict[str, np.ndarray]:
        self.threads.add(threading.get_ident())
        self.read.append(position)
        if position == self.bad:
            raise UserError("data.npz: damaged")
        return {"x": np.array(position)}

    def wait_for(self, count: int) -> list[int]:
        limit = time.monotonic() + 20
        while len(self.read) < count and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(0.02)  # for one too many
        return self.read


def test_so_many_batches_and_no_more() -> None:
    reader = Reader()
    ahead = Ahead(reader, lambda position: position + 4, end=100, depth=2)
    assert int(ahead.get(0)["x"]) == 0
    assert reader.wait_for(3) == [0, 4, 8]
    assert int(ahead.get(4)["x"]) == 4
    assert reader.wait_for(4) == [0, 4, 8, 12]
    assert len(reader.threads) == 1
    assert threading.get_ident() not in reader.threads


def test_nothing_past_the_end_unless_asked_for() -> None:
    reader = Reader()
    ahead = Ahead(reader, lambda position: position + 4, end=8)
    assert [int(ahead.get(n)["x"]) for n in (0, 4)] == [0, 4]
    assert reader.wait_for(2) == [0, 4]
    assert int(ahead.get(8)["x"]) == 8


def test_another_batch_than_the_next() -> None:
    reader = Reader()
    ahead = Ahead(reader, lambda position: position + 4, end=100)
    ahead.start(0)
    assert [int(ahead.get(n)["x"]) for n in (0, 16, 4)] == [0, 16, 4]


def test_an_error_comes_with_its_batch() -> None:
    reader = Reader(bad=8)
    ahead = Ahead(reader, lambda position: position + 4, end=100)
    assert [int(ahead.get(n)["x"]) for n in (0, 4)] == [0, 4]
    reader.wait_for(4)
    with pytest.raises(UserError, match="damaged"):
        ahead.get(8)
    assert int(ahead.get(12)["x"]) == 12
