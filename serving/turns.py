"""Turns of work in threads: a few at a time, the smallest first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """Runs at most ``most`` calls at a time in threads; all from one event loop.

    Work that waits for a process would otherwise take all threads of the event loop, which has few,
    and other requests would wait for one.
    """

    def __init__(self, most: int = 1) -> None:
        self._free, self._numbers = most, itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of ``work``; among waiting calls the one of least ``size`` is next.

        A cancelled call keeps its turn until its thread ends.
        """
        await self._take(size)
        working = asyncio.ensure_future(asyncio.to_thread(work))
        working.add_done_callback(lambda _: self._release())
        return await asyncio.shield(working)

    async def _take(self, size: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (size, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn at the same time
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
