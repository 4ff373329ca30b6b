"""A process for work that would block the event loop: parsing and writing long JSON.

A thread would not help: Python's JSON parser keeps the GIL until it has read the whole text. The
process has limits on time and memory, so no request can exhaust the server.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tensoropt.runtime.support.parent import end_with
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["SideProcess"]

_GROWTH = 24
"""Bytes of memory per byte of JSON: `1,` takes 15 per byte, in a list and in the arrays."""

_IMPORTS = 1 << 29
"""Bytes of address space for the modules that the first call imports, and their threads."""

P = ParamSpec("P")
T = TypeVar("T")


class SideProcess:
    """Calls functions in sequence in another process, which the first call starts.

    A call fails after ``timeout_s`` seconds, or if it allocates more memory than JSON of
    ``max_body`` bytes needs. All calls must come from one event loop.
    """

    def __init__(self, max_body: int = 64 << 20, timeout_s: float = 60.0) -> None:
        self._memory_bytes, self._timeout_s = _IMPORTS + _GROWTH * max_body, timeout_s
        self._executor: ProcessPoolExecutor | None = None
        self._process: set[BaseProcess] = set()
        self._turn = asyncio.Semaphore(1)

    async def run(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Call ``work`` in the process. Raises its errors, and `RefusedError` at a limit."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._call_in_turn(work, *given, **named)
        except TimeoutError:
            why = f"body: was not read within {self._timeout_s:g} s (--timeout)"
            raise RefusedError(Reason.LATE, why) from None
        except (BrokenProcessPool, MemoryError):
            raise RefusedError(
                Reason.LARGE,
                "body: takes too much time or memory as JSON, expected tensors as bytes",
            ) from None

    async def _call_in_turn(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        await self._turn.acquire()
        try:
            if self._executor is None:
                limits = os.getpid(), self._memory_bytes
                self._executor = ProcessPoolExecutor(1, get_context("spawn"), _confine, limits)
            before = {*active_children()}
            found = self._executor.submit(_call_limited, self._timeout_s, work, given, named)
            self._process |= {*active_children()} - before  # by the first call
        except BaseException:
            self._turn.release()
            raise
        loop = asyncio.get_running_loop()
        found.add_done_callback(lambda _: _call_soon(loop, lambda: self._free(found)))
        try:
            return await asyncio.wrap_future(found)
        except asyncio.CancelledError:  # the result is no longer wanted
            self._kill()
            raise

    def _free(self, done: Future[T]) -> None:
        """Admit the next call, in a new process if this process ended."""
        if done.cancelled() or isinstance(done.exception(), BrokenProcessPool):
            self._executor = None
            self._process.clear()
        self._turn.release()

    def _kill(self) -> None:
        for process in self._process:
            process.kill()

    def close(self) -> None:
        """Kill the process."""
        executor, self._executor = self._executor, None
        self._kill()
        if executor is not None:
            executor.shutdown()


def _call_soon(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(work)


def _confine(parent: int, memory_bytes: int) -> None:
    """End this process with its parent, and let it allocate at most ``memory_bytes`` more.

    SIGINT is ignored: the parent handles Ctrl-C.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _call_limited(
    seconds: float, work: Callable[..., T], given: tuple[Any, ...], named: dict[str, Any]
) -> T:
    """Call ``work``; the kernel kills this process after ``seconds`` of CPU time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return work(*given, **named)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
