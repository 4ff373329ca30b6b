"""Turns of work in threads."""

from __future__ import annotations

import asyncio
import threading

from tensoropt.serving.turns import Turns

LIMIT_S = 20.0


def test_the_smallest_is_next() -> None:
    async def work() -> list[int]:
        turns, gate, done = Turns(), threading.Event(), list[int]()
        first = asyncio.create_task(turns.run(9, lambda: gate.wait(LIMIT_S)))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(turns.run(n, lambda n=n: done.append(n))) for n in (5, 2, 7)]
        await asyncio.sleep(0.01)
        assert done == []
        gate.set()
        await asyncio.gather(first, *rest)
        return done

    assert asyncio.run(work()) == [2, 5, 7]


def test_a_cancelled_call_keeps_its_turn_until_its_thread_ends() -> None:
    async def work() -> None:
        turns, gate = Turns(), threading.Event()
        running = asyncio.create_task(turns.run(1, lambda: gate.wait(LIMIT_S)))
        waiting = asyncio.create_task(turns.run(1, lambda: 1))
        last = asyncio.create_task(turns.run(1, lambda: 2))
        await asyncio.sleep(0.01)
        running.cancel()
        waiting.cancel()
        await asyncio.sleep(0.01)
        assert running.cancelled()
        assert not last.done()
        gate.set()
        assert await last == 2
        assert await turns.run(1, lambda: 3) == 3

    asyncio.run(work())


def test_an_error_ends_the_turn() -> None:
    def fail() -> None:
        raise ValueError("wrong")

    async def work() -> list[object]:
        turns = Turns()
        calls = turns.run(1, fail), turns.run(2, lambda: 5)
        return [*await asyncio.gather(*calls, return_exceptions=True)]

    first, second = asyncio.run(work())
    assert str(first) == "wrong"
    assert second == 5
