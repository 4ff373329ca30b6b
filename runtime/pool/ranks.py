"""The ranks of a pool, in the process that started them."""

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

from tensoropt.runtime.launch.launcher import hand_over
from tensoropt.runtime.launch.oversight import RANKS_END_S
from tensoropt.runtime.launch.processes import Processes
from tensoropt.runtime.launch.reason import reason
from tensoropt.runtime.pool.job import PoolJob
from tensoropt.runtime.support.errors import RankFailedError, TensoroptError, UserError
from tensoropt.runtime.support.messages import Message, receive

__all__ = ["Answers", "Ranks", "exhaust"]

T = TypeVar("T")

Answers = Generator[Message, None, list[Message]]
"""Yields rank 0's messages during a request, and returns the answer of each rank."""

_ALIKE_S = 1.0  # after one rank's error, for the same error of the others, beyond its own time
_LEAVE_S = 2.0  # for an orderly end of the ranks


class Ranks:
    """Running ranks, until `end` is called or this is garbage-collected. Thread-safe.

    Call `get_ready` before the first request. Raises `UserError` if the ranks cannot be started.
    """

    def __init__(self, job: PoolJob, count: int) -> None:
        self._stall_s, self._start_timeout_s = job.stall_s, job.start_timeout_s or job.stall_s
        self._heard_at: float | None = None
        self._processes = Processes()
        self._in_flight = job.in_flight
        self._slots = threading.Semaphore(job.in_flight)
        self._sending, self._failing = threading.Lock(), threading.Lock()
        self._turns = threading.Condition()
        self._sent = self._answered = 0
        self._known_blocks: set[int] = set()
        self._why: str | None = None
        over = threading.Event()
        self._end = weakref.finalize(self, _end, self._processes, over, os.getpid())
        try:
            hand_over(job, self._processes.folder)
            _start(self._processes, count, over)
        except BaseException:
            self.kill("they were not started")
            raise

    def get_ready(self) -> None:
        """Wait until all ranks are ready; if one fails, end all. Raises `UserError`."""
        try:
            exhaust(self._answers(self._start_timeout_s))
        except BaseException:
            self.kill("they did not get ready")
            raise

    @property
    def silent_s(self) -> float:
        """Seconds since the busy ranks last sent a message; 0 while they are idle."""
        heard_at = self._heard_at  # another thread changes it
        return 0.0 if heard_at is None else time.monotonic() - heard_at

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids, by rank."""
        ranks = self._processes.ranks
        return tuple(ranks[rank].pid for rank in sorted(ranks))

    def is_alive(self) -> bool:
        """Return True if no rank has ended."""
        return self._end.alive and not any(map(_is_hung_up, self._processes.channels))

    def slot(self) -> AbstractContextManager[bool]:
        """Return a context for one request, which bounds the requests in flight."""
        return self._slots

    def ask(self, message: Message, list_changes: Callable[[set[int]], Message]) -> Answers:
        """Send a message to all ranks, yield rank 0's messages, and return all ranks' answers.

        ``list_changes`` returns further fields of the message; it is called right before sending,
        with the numbers of the blocks that the ranks know. Exhaust the generator. Raises
        `UserError` if all ranks failed at the same place; they continue. Otherwise a failure ends
        all ranks and raises `RankFailedError`.
        """
        try:
            with self._turn(self._send(message, list_changes)):
                return (yield from self._answers(self._stall_s))
        except TensoroptError:
            raise
        except BaseException:  # an interrupt: the answers will not be read
            self.kill("the ranks were ended while they were at work")
            raise

    def end(self, grace_s: float) -> None:
        """End the ranks after their requests; kill them after ``grace_s`` seconds."""
        until = time.monotonic() + grace_s
        with ExitStack() as stack:
            for _ in range(self._in_flight):
                if not self._slots.acquire(timeout=max(until - time.monotonic(), 0.0)):
                    self.kill("the session was closed while the ranks were at work")
                    return
                stack.callback(self._slots.release)  # waiting requests then fail
            with self._turns:
                self._why = self._why or "the session was closed"
            self._end()

    def kill(self, why: str) -> None:
        """Kill the ranks immediately; requests fail with the message ``why``."""
        with self._failing:
            self._kill(why)

    def _kill(self, why: str) -> None:
        if found := self._end.detach():
            processes, over, owner = found[2]
            _end(processes, over, owner, patience_s=0.0)
        with self._turns:
            self._why = self._why or why
            self._turns.notify_all()

    def _send(self, message: Message, list_changes: Callable[[set[int]], Message]) -> int:
        """Send a message and return its number: answers arrive in the same order."""
        with self._sending:
            number = self._sent
            changes = list_changes(self._known_blocks)
            text = json.dumps({**message, **changes, "number": number}).encode()
            try:
                for channel in self._processes.channels:
                    channel.send_bytes(text)
            except OSError:
                raise self._fail() from None
            self._sent += 1
            return number

    @contextmanager
    def _turn(self, number: int) -> Iterator[None]:
        """Wait until the answers to the previous messages were received."""
        with self._turns:
            self._turns.wait_for(lambda: self._answered == number or self._why is not None)
        try:
            yield
        finally:
            with self._turns:
                self._answered += 1
                self._turns.notify_all()

    def _answers(self, limit_s: float | None) -> Answers:
        """Return the next answer of each rank. Raises as `ask` does."""
        try:
            return self._check_errors((yield from self._all_answers(limit_s)))
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
                raise self._fail(self._why_late(answers, limit_s))
            for descriptor in ready:
                message = self._receive(channels[waiting[descriptor]])
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

    def _receive(self, channel: Connection) -> Message:
        try:
            return receive(channel, None)
        except (EOFError, OSError):
            raise self._fail() from None

    def _why_late(self, answers: dict[int, Message], limit_s: float | None) -> str:
        count = len(self._processes.channels)
        for rank, answer in answers.items():
            if "error" in answer:
                return f"rank {rank} of {count}: {answer['error']}"
        late = [str(rank) for rank in range(count) if rank not in answers]
        which = f"rank{'s' if len(late) > 1 else ''} {', '.join(late)} of {count}"
        return f"no answer within {limit_s or 0:g} s from {which}"

    def _check_errors(self, answers: list[Message]) -> list[Message]:
        """Return the answers. Raises `UserError` for errors at the same collective on all ranks,
        and ends the ranks for other errors."""
        errors = [(rank, answer) for rank, answer in enumerate(answers) if "error" in answer]
        if not errors:
            return answers
        rank, first = errors[0]
        if len({answer.get("collectives") for answer in answers}) == 1:
            raise UserError(first["error"])
        raise self._fail(f"rank {rank} of {len(answers)}: {first['error']}")

    def _fail(self, why: str | None = None) -> RankFailedError:
        """End all ranks; return the first error: ``why``, or the reason why a rank ended."""
        with self._failing:
            if self._why is None:
                log = self._processes.folder / "log"
                self._kill(why or reason(self._processes, log))
            return RankFailedError(self._why)


def exhaust(generator: Generator[object, None, T]) -> T:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            found: T = end.value
            return found


def _end_of(begin: float, limit_s: float | None) -> float:
    """Return the deadline of an answer to a request that started at ``begin``.

    It is `RANKS_END_S` after the limit: the ranks enforce the limit themselves if they can.
    """
    return math.inf if limit_s is None else begin + limit_s + RANKS_END_S


def _readable(descriptors: Iterable[int], end: float) -> list[int]:
    """Wait until data or the end of a connection can be read, at most until ``end``."""
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
    """Start the ranks from a thread that lives until ``over``: they are killed when it ends."""
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
    """End the ranks, orderly if possible; does nothing in a forked child of the owner.

    Channels are not closed here, because other threads may read them: garbage collection does.
    """
    if os.getpid() != owner:
        return
    for channel in processes.channels:
        with suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as end:
            end.shutdown(socket.SHUT_WR)
    processes.wait(patience_s)
    processes.__exit__(None, None, None)
    over.set()
