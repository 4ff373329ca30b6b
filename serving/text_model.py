"""A served decoder: its ranks, and the queue of texts for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from time import perf_counter
from typing import Any

from tensoropt.runtime.support.errors import RankFailedError, UserError, one_line
from tensoropt.runtime.text.chat import Chat
from tensoropt.runtime.text.session import Piece, TextSession
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.options import TextLimits
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.ranks import LOOK_S, UNWANTED_S, Restarts

__all__ = ["TextModel"]

_PROTOCOL = "openai"  # in metrics


class TextModel:
    """Continues texts by one plan, one request at a time, while `work` runs."""

    def __init__(
        self,
        name: str,
        session: TextSession,
        limits: TextLimits,
        metrics: Metrics,
    ) -> None:
        self.name = name
        self._session, self.limits, self._metrics = session, limits, metrics
        self._asked, self._is_closed = 0, False
        # One thread serializes all requests to the ranks, and their restarts.
        self._thread = ThreadPoolExecutor(1, f"ranks-{name}")
        restart = partial(self._in_thread, session.restart)
        self._restarts = Restarts(name, restart, metrics)
        metrics.watch(name, lambda: max(0, self._asked - 1), lambda: float(self.is_ready))

    @property
    def is_ready(self) -> bool:
        """True if all ranks run, and no run has exceeded the timeout of its clients."""
        return self._session.is_alive and self._session.silent_s <= self.limits.timeout_s

    @property
    def is_idle(self) -> bool:
        """True if no request is queued or in progress."""
        return not self._asked

    def describe(self) -> str:
        """Describe the handling of requests, for the log."""
        return "continues texts, one request at a time"

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a text, None if unknown."""
        return self._session.context

    async def tokens_of(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt; raises `RefusedError`."""
        return await _checked(self._session.tokens_of, prompt)

    async def tokens_of_chat(self, messages: Chat) -> list[int]:
        """Return the tokens of a chat; raises `RefusedError`."""
        return await _checked(self._session.tokens_of_chat, messages)

    def room(self, tokens: Sequence[int]) -> int:
        """Return the default limit of new tokens after these."""
        return self._session.room(tokens)

    async def pieces(
        self, prompts: Sequence[Sequence[int]], **how: Any
    ) -> AsyncGenerator[Piece, None]:
        """Yield the pieces that follow the prompts, once computed; raises `RefusedError`.

        Closing the generator cancels the request.
        """
        with self._metrics.request(self.name, _PROTOCOL):
            self._check_room()
            self._asked += 1
            made, left = _PieceQueue(), threading.Event()
            work = self._thread.submit(self._make, prompts, how, made.put, left, perf_counter())
            try:
                while (piece := await made.next()) is not None:
                    self._metrics.tokens.labels(self.name, "completion").inc()
                    yield piece
            finally:
                left.set()
                work.cancel()
                self._asked -= 1

    def _check_room(self) -> None:
        if self._is_closed:
            raise RefusedError(Reason.UNAVAILABLE, "the model was loaded again, expected a retry")
        most = self.limits.queue
        if self._asked >= most:
            raise RefusedError(Reason.UNAVAILABLE, f"{most} requests wait already (--queue)")

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Count a request that is refused before it reaches the ranks."""
        try:
            yield
        except RefusedError as error:
            self._metrics.requests.labels(self.name, _PROTOCOL, error.reason.code).inc()
            raise

    def _make(
        self,
        prompts: Sequence[Sequence[int]],
        how: dict[str, Any],
        put: Callable[[Piece | RefusedError | None], None],
        left: threading.Event,
        since_s: float,
    ) -> None:
        self._metrics.queued.labels(self.name).observe(perf_counter() - since_s)
        self._metrics.tokens.labels(self.name, "prompt").inc(sum(map(len, prompts)))
        try:
            with closing(self._session.stream(prompts, cancelled=left, **how)) as stream:
                for piece in stream:
                    put(piece)
            put(None)
        except RankFailedError as error:
            put(RefusedError(Reason.UNAVAILABLE, one_line(error)))
        except UserError as error:
            put(RefusedError(Reason.INVALID, one_line(error)))
        except Exception as error:
            failed = RefusedError(Reason.FAILED, one_line(error))
            failed.__cause__ = error  # the log names its place
            put(failed)

    async def work(self) -> None:
        """Restart ranks that ended, until cancelled; pauses grow while restarts fail."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._session.is_alive:
                self._restarts.forget()
            else:
                await self._restarts.start()

    async def close(self) -> None:
        """End the ranks; `work` has been cancelled."""
        self._is_closed = True
        await asyncio.to_thread(self._session.close, UNWANTED_S)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _checked(tokens_of: Callable[[Any], list[int]], given: object) -> list[int]:
    """Return the tokens of ``given``, computed in a thread; raises `RefusedError`."""
    try:
        return await asyncio.to_thread(tokens_of, given)
    except UserError as error:
        raise RefusedError(Reason.INVALID, one_line(error)) from None


class _PieceQueue:
    """A queue of pieces from a thread to the event loop; None ends it, an error is raised."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Piece | RefusedError | None] = asyncio.Queue()

    def put(self, piece: Piece | RefusedError | None) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def next(self) -> Piece | None:
        piece = await self._queue.get()
        if isinstance(piece, RefusedError):
            raise piece
        return piece
