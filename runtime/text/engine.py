"""The texts that a session's ranks continue together, in the process that started the ranks."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Self

import numpy as np

from tensoropt.runtime.pool.pool import Pool
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.isolation import TextFailedError, isolated
from tensoropt.runtime.text.sampling import Likely
from tensoropt.runtime.text.stopping import StopTexts
from tensoropt.runtime.text.tokens import TextOf

__all__ = ["Deliver", "Engine", "Piece", "Request", "Stream", "Writer"]


@dataclass(frozen=True)
class Piece:
    """One token of the continuation of prompt ``number``.

    ``text`` is the new final text; it may be empty, because a character may take several tokens.
    ``finish`` is set on the last piece: "stop" at a stop text or an end token, "length" at the
    limit. ``likely`` has the logarithms of probabilities, if they were requested. Of the first
    piece, ``prompt`` has them for each token of the prompt except its first, if requested, and
    ``copied`` is the number of the prompt's tokens that were copied from caches instead of read.
    """

    number: int
    token: int
    text: str
    finish: str | None = None
    likely: Likely | None = None
    prompt: Sequence[Likely] = ()
    copied: int = 0


Deliver = Callable[[Piece | BaseException | None], None]
"""Takes the pieces of a request, then None, or an error. It must not wait."""


@dataclass
class Writer:
    """Creates the pieces of the continuation of prompt ``number``, at most ``limit`` tokens.

    Stop texts count in the text after the first ``least`` tokens.
    ``tokens`` is the number of tokens of the prompt and its continuation. ``prompt`` and ``copied``
    are passed on with the first piece.
    """

    number: int
    limit: int
    stream: TextOf | None
    until: StopTexts
    end: Sequence[int]
    tokens: int = 0
    least: int = 0
    prompt: list[Likely] = field(default_factory=list)
    copied: int = 0

    def add(self, token: int, likely: Likely | None = None) -> Piece:
        """Return the piece of the next token."""
        self.limit -= 1
        self.tokens += 1
        ends = token in self.end
        text, self.least = self._text(token, ends=ends), self.least - 1
        if self.least < 0:
            text = self.until.add(text)
        finish = "stop" if ends or self.until.found else "length" if not self.limit else None
        if finish is not None and not self.until.found:
            text += self.until.rest()
        prompt, self.prompt = self.prompt, []
        copied, self.copied = self.copied, 0
        return Piece(self.number, token, text, finish, likely, prompt, copied)

    def _text(self, token: int, *, ends: bool) -> str:
        """Return the new text after a token; if it ``ends`` the text, it has none of its own."""
        if self.stream is None:
            return ""
        text = "" if ends else self.stream.add(token)
        # A stop, such as a line break, may be a byte token: it does not wait for the next token.
        if ends or not self.limit or self.until.is_before(text + self.stream.run):
            text += self.stream.rest()
        return text


@dataclass(eq=False)
class Request:
    """Texts that were submitted together; ``waited_s`` is set when the first is admitted."""

    deliver: Deliver
    writers: dict[int, Writer] = field(default_factory=dict)
    submitted_s: float = field(default_factory=perf_counter)
    waited_s: float | None = None


class Engine:
    """Submits texts to the ranks of a pool and delivers their tokens, in a thread. Thread-safe.

    The thread lives while there are texts. Ranks continue on their own; they are interrupted after
    the current step only if texts are added or dropped. ``copied`` counts tokens of prompts that
    ranks copied from caches, ``proposed`` tokens that ranks proposed, and ``accepted`` proposed
    tokens that became tokens of texts.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.RLock()
        self._abandoned: deque[Request] = deque()
        self._thread: threading.Thread | None = None
        self._flag = pool.empty({"stop": (np.dtype(np.int64), (1,))})["stop"]
        self._keys = self._requests = 0
        self.copied = self.proposed = self.accepted = 0
        self._texts: dict[int, Request] = {}  # by key
        self._admitted: set[int] = set()
        self._new: list[Message] = []
        self._dropped: list[int] = []

    @property
    def running(self) -> int:
        """Number of texts that ranks continue."""
        return len(self._admitted)

    @property
    def waiting(self) -> int:
        """Number of texts that wait for a slot."""
        return max(0, len(self._texts) - len(self._admitted))

    @property
    def tokens(self) -> int:
        """Number of tokens of the texts that ranks continue."""
        with self._lock:
            return sum(self._texts[key].writers[key].tokens for key in self._admitted)

    def submit(self, texts: Sequence[tuple[Message, Writer]], deliver: Deliver) -> Request:
        """Start to continue the texts of a request, each with its message to the ranks."""
        request = Request(deliver)
        with self._lock:
            self._requests += 1
            for message, writer in texts:
                self._keys += 1
                request.writers[self._keys] = writer
                self._texts[self._keys] = request
                self._new.append({**message, "key": self._keys, "request": self._requests})
            self._interrupt()
        return request

    def cancel(self, request: Request) -> None:
        """Drop the texts of a request; does nothing if all have ended."""
        with self._lock:
            self._drop([*request.writers])

    def abandon(self, request: Request) -> None:
        """Drop the texts of a request soon, without waiting for any lock.

        Garbage collection calls it at any place, also in a thread that the engine starts while it
        has its own lock.
        """
        if request.writers:
            self._abandoned.append(request)
            self._flag[0] = 1

    def close(self, why: UserError) -> None:
        """Drop all texts; their requests fail."""
        with self._lock:
            failed = self._open_requests()
            self._drop([*self._texts])
        for request in failed:
            request.deliver(why)

    def _drop(self, keys: Sequence[int]) -> None:
        """Drop texts; the caller has the lock."""
        unsent = {message["key"] for message in self._new}
        for key in keys:
            if self._forget(key) and key not in unsent:
                self._dropped.append(key)
        self._new = [message for message in self._new if message["key"] in self._texts]
        self._interrupt()

    def _forget(self, key: int) -> bool:
        """Forget a text; return False if it was forgotten before. The caller has the lock."""
        request = self._texts.pop(key, None)
        if request is None:
            return False
        del request.writers[key]
        self._admitted.discard(key)
        return True

    def _open_requests(self) -> list[Request]:
        return list({id(request): request for request in self._texts.values()}.values())

    def _interrupt(self) -> None:
        """Let the ranks hear of new and dropped texts; the caller has the lock."""
        if not (self._new or self._dropped):
            return
        self._flag[0] = 1
        if self._thread is None or not self._thread.is_alive():  # as in a forked process
            self._thread = threading.Thread(target=self._work, name="texts", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Send requests to the ranks until no text is left."""
        while (asked := self._take_changes()) is not None:
            try:
                for message in self._ask(asked):
                    self._note_copied(message["copied"])
                    self.proposed += message["proposed"]
                    self.accepted += message["accepted"]
                    self._deliver(message["chosen"])
                    for key, why, is_refused in message["failed"]:
                        self._fail_text(key, UserError(why) if is_refused else TextFailedError(why))
            except BaseException as error:
                self._fail(error)

    def _take_changes(self) -> Message | None:
        with self._lock:
            self._flag[0] = 0
            while self._abandoned:
                self._drop([*self._abandoned.popleft().writers])
            if not (self._texts or self._dropped):
                self._thread = None
                return None
            asked = {"add": self._new, "drop": self._dropped}
            self._new, self._dropped = [], []
            return asked

    def _ask(self, asked: Message) -> Iterator[Message]:
        messages = self._pool.stream(asked, {"stop": self._flag})
        yield (yield from messages)[0]

    def _note_copied(self, copied: Sequence[tuple[int, int]]) -> None:
        """Count the tokens that were copied for texts, which have these keys."""
        with self._lock:
            for key, count in copied:
                self.copied += count
                if key in self._texts:
                    self._texts[key].writers[key].copied = count

    def _deliver(self, chosen: Sequence[tuple[int, int | None, Likely | None]]) -> None:
        for key, token, likely in chosen:
            with isolated(partial(self._fail_text, key)):
                self._deliver_choice(key, token, likely)

    def _deliver_choice(self, key: int, token: int | None, likely: Likely | None) -> None:
        with self._lock:
            request = self._texts.get(key)
            if request is None:  # dropped
                return
            writer = request.writers[key]
            if token is None and likely is not None:
                writer.prompt.append(likely)
                return
            if token is None:
                self._admitted.add(key)
                if request.waited_s is None:
                    request.waited_s = perf_counter() - request.submitted_s
                return
        piece = writer.add(token, likely)
        request.deliver(piece)
        if piece.finish is not None:
            self._end(key, request, is_stopped=writer.until.found)

    def _fail_text(self, key: int, error: UserError) -> None:
        """End the request of a text with an error; the texts of other requests go on."""
        with self._lock:
            request = self._texts.get(key)
            if request is None:
                return
            self._drop([*request.writers])
        with suppress(Exception):  # of a caller that cannot take the error
            request.deliver(error)

    def _end(self, key: int, request: Request, *, is_stopped: bool) -> None:
        """Forget a text; ranks have to be told only of a stop text."""
        with self._lock:
            if not self._forget(key):
                return
            if is_stopped:
                self._dropped.append(key)
                self._interrupt()
        if not request.writers:
            request.deliver(None)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            failed = self._open_requests()
            for key in [*self._texts]:
                self._forget(key)
            self._new, self._dropped = [], []
        for request in failed:
            request.deliver(error)


class Stream(Iterator[Piece]):
    """The pieces of a request, as ranks choose its tokens; `close` cancels it, from any thread."""

    def __init__(self, engine: Engine, texts: Sequence[tuple[Message, Writer]]) -> None:
        self._engine = engine
        self._pieces: queue.SimpleQueue[Piece | BaseException | None] = queue.SimpleQueue()
        self._request = engine.submit(texts, self._pieces.put)
        self._is_over = False

    def __next__(self) -> Piece:
        piece = None if self._is_over else self._pieces.get()
        if isinstance(piece, Piece):
            return piece
        self._is_over = True
        if piece is None:
            raise StopIteration
        raise piece

    def close(self) -> None:
        """Drop the texts that have not ended, and end the iteration. Idempotent."""
        self._is_over = True
        self._engine.cancel(self._request)
        self._pieces.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was not submitted
            self._engine.abandon(self._request)
