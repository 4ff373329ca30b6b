"""A served decoder: its ranks, and the requests that they answer together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import nan
from typing import Any

from tensoropt.runtime.support.errors import RankFailedError, UserError, one_line
from tensoropt.runtime.text.chat import Chat, Tools, Variables
from tensoropt.runtime.text.isolation import TextFailedError
from tensoropt.runtime.text.session import Piece, TextSession
from tensoropt.serving.converting import convert, refusing
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.options import TextLimits
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.ranks import LOOK_S, UNWANTED_S, Restarts
from tensoropt.serving.turns import Turns

__all__ = ["TextModel"]

_PROTOCOL = "openai"  # in metrics
_CHATS = 2  # that are converted to tokens at a time: templates are rendered in sequence


class TextModel:
    """Continues the texts of all requests together by one plan, while `work` runs."""

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
        self._checks, self._chats = Turns(), Turns(_CHATS)
        restart = partial(asyncio.to_thread, session.restart)
        self._restarts = Restarts(name, restart, metrics)
        metrics.watch(name, lambda: session.waiting, lambda: float(self.is_ready))
        metrics.watch_texts(name, lambda: session.running)
        metrics.watch_proposals(name, lambda: session.proposed, lambda: session.accepted)
        metrics.texts.watch(
            name,
            lambda: session.running,
            lambda: session.waiting,
            lambda: nan if session.cache_use is None else session.cache_use,
        )

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
        slots, context = self._session.slots, self.context
        together = f"up to {slots} together" if slots > 1 else "one at a time"
        return f"continues texts, {together}, of up to {context or 'any number of'} tokens"

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a text, None if unknown."""
        return self._session.context

    async def tokens_of(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt; raises `RefusedError`."""
        return await convert(self._session.tokens_of, prompt)

    async def tokens_of_chat(
        self, messages: Chat, tools: Tools = (), variables: Variables | None = None
    ) -> list[int]:
        """Return the tokens of a chat; raises `RefusedError`."""
        size = sum(len(str(message.get("content"))) for message in messages)
        work = partial(self._session.tokens_of_chat, messages, tools, variables)
        with refusing():
            return await self._chats.run(size, work)

    @property
    def chat_template(self) -> str | None:
        """The text of the model's chat template."""
        return self._session.chat_template

    def has_template_variable(self, name: str) -> bool:
        """Return True if the model's chat template names a variable."""
        with refusing():
            return self._session.has_template_variable(name)

    async def check_grammar(self, grammar: str | None) -> None:
        """Raise `RefusedError` unless texts can keep to a grammar."""
        if grammar is None:
            return
        with refusing():
            await self._checks.run(len(grammar), partial(self._session.check_grammar, grammar))

    async def split(self, tokens: Sequence[int], text: str | None = None) -> list[str]:
        """Return the part of each token in a text, by default the text of the tokens."""
        return await convert(self._session.split, tokens, text)

    def text_of_token(self, token: int) -> str:
        """Return the text of one token."""
        return self._session.text_of([token])

    def spell_token(self, token: int) -> tuple[str, bytes]:
        """Return the text of one token, and its bytes, which may be a part of a character."""
        return self._session.text_of([token]), self._session.bytes_of(token)

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
            try:
                async for piece in self._submitted(prompts, how):
                    yield piece
            finally:
                self._asked -= 1

    async def _submitted(
        self, prompts: Sequence[Sequence[int]], how: dict[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        made = _PieceQueue()
        try:
            request = self._session.submit(prompts, made.put, **how)
        except UserError as error:
            raise RefusedError(Reason.INVALID, one_line(error)) from None
        self._metrics.tokens.labels(self.name, "prompt").inc(sum(map(len, prompts)))
        is_first = True
        try:
            with self._metrics.texts.request(self.name, prompts) as times:
                while (piece := await made.next()) is not None:
                    if is_first and request.waited_s is not None:
                        self._metrics.queued.labels(self.name).observe(request.waited_s)
                        times.waited_s = request.waited_s
                    is_first = False
                    self._metrics.tokens.labels(self.name, "completion").inc()
                    times.add(piece)
                    yield piece
        finally:
            self._session.cancel(request)

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


class _PieceQueue:
    """A queue of pieces from a thread to the event loop; None ends it, an error is raised."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()

    def put(self, piece: Piece | BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def next(self) -> Piece | None:
        """Return the next piece; raises `RefusedError`."""
        piece = await self._queue.get()
        if isinstance(piece, BaseException):
            raise RefusedError(_reason(piece), one_line(piece)) from piece
        return piece


def _reason(error: BaseException) -> Reason:
    if isinstance(error, RankFailedError):
        return Reason.UNAVAILABLE
    if isinstance(error, TextFailedError):
        return Reason.FAILED
    return Reason.INVALID if isinstance(error, UserError) else Reason.FAILED
