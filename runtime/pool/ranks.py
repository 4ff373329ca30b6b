"""The ranks of a pool, as the process has them that started them."""

from __future__ import annotations

import json
import os
import select
import threading
import time
import weakref
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from tensoropt.runtime.launch.launcher import handed_over
from tensoropt.runtime.launch.processes import Processes
from tensoropt.runtime.launch.reason import reason
from tensoropt.runtime.pool.job import PoolJob
from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.runtime.support.messages import Message, receive

__all__ = ["Ranks"]

_ALIKE_S = 1.0  # beyond the time that it took one rank to fail, for the others to do alike
_LEAVE_S = 2.0  # for ranks to end in order


class Ranks:
    """Running ranks, until `end` is called or this is dropped; one caller at a time.

    They are ready when this is made. Raises `UserError` where they do not get so.
    """

    def __init__(self, job: PoolJob, count: int) -> None:
        self._timeout_s = job.timeout_s
        self._processes = Processes()
        ended = threading.Event()
        self.end = weakref.finalize(self, _end, self._processes, ended, os.getpid())
        try:
            handed_over(job, self._processes.folder)
            _start(self._processes, count, ended)
            self._refuse(self._answers())
        except BaseException:
            self.end()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes, by rank."""
        ranks = self._processes.ranks
        return tuple(ranks[rank].pid for rank in sorted(ranks))

    def is_alive(self) -> bool:
        """Say whether no rank has ended; from any thread."""
        with suppress(OSError):  # ended meanwhile
            return self.end.alive and not any(map(_is_hung_up, self._processes.channels))
        return False

    def ask(self, message: Message) -> list[Message]:
        """Send a message to all ranks and return their answers.

        Raises `UserError` where all ranks failed alike, and may be asked again, or else
        `RankFailedError`; then none is left.
        """
        text = json.dumps(message).encode()
        try:
            for channel in self._processes.channels:
                channel.send_bytes(text)
        except OSError:
            raise self._failed() from None
        return self._refuse(self._answers())

    def _answers(self) -> list[Message]:
        """Return an answer of each rank. Raises `RankFailedError`."""
        answers: dict[int, Message] = {}
        waiting = dict(enumerate(self._processes.channels))
        begin = time.monotonic()
        end = None if self._timeout_s is None else begin + self._timeout_s
        while waiting:
            for rank in self._ready(waiting, answers, end):
                answers[rank] = self._received(waiting.pop(rank))
                if "error" in answers[rank]:
                    soon = 2 * time.monotonic() - begin + _ALIKE_S
                    end = soon if end is None else min(end, soon)
        return [answers[rank] for rank in range(len(answers))]

    def _ready(
        self, waiting: dict[int, Connection], answers: dict[int, Message], end: float | None
    ) -> list[int]:
        """Return which of the ranks that are waited for have answered, at least one."""
        left = None if end is None else max(end - time.monotonic(), 0.0)
        ready = wait(waiting.values(), left)
        if not ready:
            raise self._ended(self._why_late(waiting, answers))
        return [rank for rank, channel in waiting.items() if channel in ready]

    def _why_late(self, waiting: dict[int, Connection], answers: dict[int, Message]) -> str:
        count = len(self._processes.channels)
        for rank, answer in answers.items():
            if "error" in answer:
                return f"rank {rank} of {count}: {answer['error']}"
        late = f"rank{'s' if len(waiting) > 1 else ''} {', '.join(map(str, waiting))} of {count}"
        return f"no answer within {self._timeout_s:g} s from {late}"

    def _received(self, channel: Connection) -> Message:
        try:
            return receive(channel)
        except (EOFError, OSError):
            raise self._failed() from None

    def _refuse(self, answers: list[Message]) -> list[Message]:
        """Return answers unless some are errors: of all ranks at one place, or else they end."""
        errors = [(rank, answer) for rank, answer in enumerate(answers) if "error" in answer]
        if not errors:
            return answers
        rank, first = errors[0]
        if len({answer["collectives"] for answer in answers}) == 1:
            raise UserError(first["error"])
        raise self._ended(f"rank {rank} of {len(answers)}: {first['error']}")

    def _failed(self) -> RankFailedError:
        """End all ranks, one of which has; returns why it did."""
        return self._ended(reason(self._processes, self._processes.folder / "log"))

    def _ended(self, why: str) -> RankFailedError:
        self.kill()
        return RankFailedError(why)

    def kill(self) -> None:
        """End the ranks at once, whatever they are at."""
        if found := self.end.detach():
            processes, ended, owner = found[2]
            _end(processes, ended, owner, patience_s=0.0)


def _is_hung_up(channel: Connection) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLHUP)
    return bool(poll.poll(0))


def _start(processes: Processes, count: int, ended: threading.Event) -> None:
    """Start the ranks from a thread that stays: the system kills them when that one ends."""
    started: Future[None] = Future()

    def stay() -> None:
        try:
            processes.start(count, processes.folder / "log", talking=True)
            started.set_result(None)
        except BaseException as error:
            started.set_exception(error)
        ended.wait()

    threading.Thread(target=stay, name="tensoropt-ranks", daemon=True).start()
    started.result()


def _end(
    processes: Processes, ended: threading.Event, owner: int, patience_s: float = _LEAVE_S
) -> None:
    """End the ranks, in order where they can; a child that was forked from their owner does not."""
    if os.getpid() != owner:
        return
    for channel in processes.channels:
        channel.close()
    processes.wait(patience_s)
    processes.__exit__(None, None, None)
    ended.set()
