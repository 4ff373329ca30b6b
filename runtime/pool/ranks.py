"""The ranks of a pool, as the process has them that started them."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TypeVar

from tensoropt.runtime.launch.launcher import handed_over
from tensoropt.runtime.launch.processes import Processes
from tensoropt.runtime.launch.reason import reason
from tensoropt.runtime.pool.job import AT_ONCE, PoolJob
from tensoropt.runtime.pool.limit import RANKS_END_S
from tensoropt.runtime.support.errors import RankFailedError, TensoroptError, UserError
from tensoropt.runtime.support.messages import Message, receive

__all__ = ["Answers", "Ranks", "last"]

T = TypeVar("T")

Answers = Generator[Message, None, list[Message]]
"""What rank 0 tells while ranks are at work, and at last the answer of each."""

_ALIKE_S = 1.0  # beyond the time that it took one rank to fail, for the others to do alike
_LEAVE_S = 2.0  # for ranks to end in order


class Ranks:
    """Running ranks, until `end` is called or this is dropped; from any thread.

    They may be asked after `get_ready`. Raises `UserError` where no rank can be started.
    """

    def __init__(self, job: PoolJob, count: int) -> None:
        self._answer_s, self._ready_s = job.answer_s, job.ready_s or job.answer_s
        self._heard_at: float | None = None
        self._processes = Processes()
        self._slots = threading.Semaphore(AT_ONCE)
        self._sending, self._failing = threading.Lock(), threading.Lock()
        self._turns = threading.Condition()
        self._sent = self._answered = 0
        self._told: set[int] = set()
        self._why: str | None = None
        over = threading.Event()
        self._end = weakref.finalize(self, _end, self._processes, over, os.getpid())
        try:
            handed_over(job, self._processes.folder)
            _start(self._processes, count, over)
        except BaseException:
            self.kill("they were not started")
            raise

    def get_ready(self) -> None:
        """Wait until all ranks may be asked; where one does not get so, none is left.

        Raises `UserError`.
        """
        try:
            last(self._answers(self._ready_s))
        except BaseException:
            self.kill("they did not get ready")
            raise

    @property
    def silent_s(self) -> float:
        """For how many seconds ranks that are at work have said nothing; 0 while they sleep."""
        heard_at = self._heard_at  # another thread changes it
        return 0.0 if heard_at is None else time.monotonic() - heard_at

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes, by rank."""
        ranks = self._processes.ranks
        return tuple(ranks[rank].pid for rank in sorted(ranks))

    def is_alive(self) -> bool:
        """Say whether no rank has ended."""
        return self._end.alive and not any(map(_is_hung_up, self._processes.channels))

    def slot(self) -> AbstractContextManager[bool]:
        """Return a context for what belongs to one request: there are few at a time."""
        return self._slots

    def ask(self, message: Message, news: Callable[[set[int]], Message]) -> Answers:
        """Send a message to all ranks; returns their answers, of a generator to be run to its end.

        ``news`` gives more of the message, when its turn has come, and takes the numbers of all
        blocks that ranks were told of. Raises `UserError` where all ranks failed alike, and may be
        asked again, or else `RankFailedError`; then none is left.
        """
        try:
            with self._turn(self._send(message, news)):
                return (yield from self._answers(self._answer_s))
        except TensoroptError:
            raise
        except BaseException:  # an interrupt: nobody will be there for the answers
            self.kill("the ranks were ended while they were at work")
            raise

    def end(self, grace_s: float) -> None:
        """End the ranks in order, after what they are at; kill them after ``grace_s`` seconds."""
        until = time.monotonic() + grace_s
        with ExitStack() as stack:
            for _ in range(AT_ONCE):
                if not self._slots.acquire(timeout=max(until - time.monotonic(), 0.0)):
                    self.kill("the session was closed while the ranks were at work")
                    return
                stack.callback(self._slots.release)  # others that wait there fail then
            with self._turns:
                self._why = self._why or "the session was closed"
            self._end()

    def kill(self, why: str) -> None:
        """End the ranks at once, whatever they are at; requests fail, and say ``why``."""
        with self._failing:
            self._kill(why)

    def _kill(self, why: str) -> None:
        if found := self._end.detach():
            processes, over, owner = found[2]
            _end(processes, over, owner, patience_s=0.0)
        with self._turns:
            self._why = self._why or why
            self._turns.notify_all()

    def _send(self, message: Message, news: Callable[[set[int]], Message]) -> int:
        """Send a message and return its number: answers come in the same order."""
        with self._sending:
            number = self._sent
            text = json.dumps({**message, **news(self._told), "number": number}).encode()
            try:
                for channel in self._processes.channels:
                    channel.send_bytes(text)
            except OSError:
                raise self._failed() from None
            self._sent += 1
            return number

    @contextmanager
    def _turn(self, number: int) -> Iterator[None]:
        """Wait until the answers before these were received."""
        with self._turns:
            self._turns.wait_for(lambda: self._answered == number or self._why is not None)
        try:
            yield
        finally:
            with self._turns:
                self._answered += 1
                self._turns.notify_all()

    def _answers(self, limit_s: float | None) -> Answers:
        """Return the next answer of each rank. Raises `RankFailedError`, or as `_refuse` does."""
        try:
            return self._refuse((yield from self._all_answers(limit_s)))
        finally:
            self._heard_at = None

    def _all_answers(self, limit_s: float | None) -> Answers:
        channels = self._processes.channels
        waiting = {channel.fileno(): rank for rank, channel in enumerate(channels)}
        answers: dict[int, Message] = {}
        begin = self._heard_at = time.monotonic()
        end = _end_of(begin, limit_s)
        while waiting:
            ready = _readable(waiting, end)
            if not ready:
                raise self._failed(self._why_late(answers, limit_s))
            for descriptor in ready:
                message = self._received(channels[waiting[descriptor]])
                if "told" in message:
                    self._heard_at = time.monotonic()
                    yield message["told"]
                    begin = begin if answers else time.monotonic()
                    end = end if answers else _end_of(begin, limit_s)
                    continue
                answers[waiting.pop(descriptor)] = message
                if "error" in message:
                    end = min(end, 2 * time.monotonic() - begin + _ALIKE_S)
        return [answers[rank] for rank in range(len(answers))]

    def _received(self, channel: Connection) -> Message:
        try:
            return receive(channel, None)
        except (EOFError, OSError):
            raise self._failed() from None

    def _why_late(self, answers: dict[int, Message], limit_s: float | None) -> str:
        count = len(self._processes.channels)
        for rank, answer in answers.items():
            if "error" in answer:
                return f"rank {rank} of {count}: {answer['error']}"
        late = [str(rank) for rank in range(count) if rank not in answers]
        which = f"rank{'s' if len(late) > 1 else ''} {', '.join(late)} of {count}"
        return f"no answer within {limit_s or 0:g} s from {which}"

    def _refuse(self, answers: list[Message]) -> list[Message]:
        """Return answers unless some are errors: of all ranks at one place, or else they end."""
        errors = [(rank, answer) for rank, answer in enumerate(answers) if "error" in answer]
        if not errors:
            return answers
        rank, first = errors[0]
        if len({answer.get("collectives") for answer in answers}) == 1:
            raise UserError(first["error"])
        raise self._failed(f"rank {rank} of {len(answers)}: {first['error']}")

    def _failed(self, why: str | None = None) -> RankFailedError:
        """End all ranks; returns what was wrong first: ``why``, or what a rank that ended says."""
        with self._failing:
            if self._why is None:
                log = self._processes.folder / "log"
                self._kill(why or reason(self._processes, log))
            return RankFailedError(self._why)


def last(generator: Generator[object, None, T]) -> T:
    """Run a generator to its end; returns what it returns."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            found: T = end.value
            return found


def _end_of(begin: float, limit_s: float | None) -> float:
    """Return when an answer is late that ranks have been at since ``begin``.

    The ranks enforce the limit themselves if they can; they get `RANKS_END_S` more for that.
    """
    return math.inf if limit_s is None else begin + limit_s + RANKS_END_S


def _readable(descriptors: Iterable[int], end: float) -> list[int]:
    """Wait for something to be read, or the end of a connection; no longer than until ``end``."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left_s = max(end - time.monotonic(), 0.0)
    return [found for found, _ in poll.poll(None if left_s == math.inf else left_s * 1000)]


def _is_hung_up(channel: Connection) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLHUP)
    return bool(poll.poll(0))


def _start(processes: Processes, count: int, over: threading.Event) -> None:
    """Start the ranks from a thread that stays: the system kills them when that one ends."""
    started: Future[None] = Future()

    def stay() -> None:
        try:
            processes.start(count, processes.folder / "log", talking=True)
            started.set_result(None)
        except BaseException as error:
            started.set_exception(error)
        over.wait()

    threading.Thread(target=stay, name="tensoropt-ranks", daemon=True).start()
    started.result()


def _end(
    processes: Processes, over: threading.Event, owner: int, patience_s: float = _LEAVE_S
) -> None:
    """End the ranks, in order where they can; a child that was forked from their owner does not.

    Channels are not closed here, as others may read there: they are when nobody has them any more.
    """
    if os.getpid() != owner:
        return
    for channel in processes.channels:
        with suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as end:
            end.shutdown(socket.SHUT_WR)
    processes.wait(patience_s)
    processes.__exit__(None, None, None)
    over.set()
