"""A pool: running ranks that answer requests of the process that started them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensoropt.runtime.device.providers import check_provider
from tensoropt.runtime.launch.launcher import ranks_present
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.blocks import Blocks, Wanted
from tensoropt.runtime.pool.job import MAX_IN_FLIGHT, REPLACED, PoolJob
from tensoropt.runtime.pool.places import pack_texts, unpack_texts
from tensoropt.runtime.pool.ranks import Ranks, exhaust
from tensoropt.runtime.session.session import check_custom_ops
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.support.rank_options import SessionOptions

__all__ = ["GRACE_S", "Pool", "check_unchanged", "start"]

GRACE_S = 30.0
"""Seconds that ranks may take to finish their requests at the end, as in a server (``--grace``)."""

_LOOK_S = 0.1  # polling interval for the end of a restart


def start(
    plan: Plan,
    program: str,
    session: SessionOptions | None = None,
    **options: Any,
) -> Pool:
    """Start ranks of ``plan`` that answer requests by a program, and return their pool when ready.

    ``program`` is one of `programs.PROGRAMS` and takes ``options``, as JSON. Raises `UserError` if
    the ranks do not get ready.
    """
    given = vars(session or SessionOptions())
    in_flight = MAX_IN_FLIGHT * plan.stages
    job = PoolJob(
        str(plan.folder.absolute()),
        program,
        options,
        sha256=plan.sha256,
        in_flight=in_flight,
        **given,
    )
    return Pool(plan, job)


class Pool(Closing):
    """Running ranks; a context manager that ends them. Thread-safe: requests are queued."""

    def __init__(self, plan: Plan, job: PoolJob) -> None:
        _refuse_ranks(plan)
        check_provider(job)
        check_custom_ops(job.custom_ops)
        self._plan, self._job = plan, job
        self._lock, self._owner = threading.RLock(), os.getpid()
        self._blocks = Blocks()
        self._is_closed = False
        self._ranks: Ranks | None = None
        self._starting: Ranks | None = None
        self._start()

    @property
    def in_flight(self) -> int:
        """The most requests that are in progress at a time."""
        return self._job.in_flight

    @property
    def is_alive(self) -> bool:
        """True if all ranks are running."""
        ranks = self._ranks
        return ranks is not None and ranks.is_alive()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the ranks, by rank; empty if they have ended."""
        ranks = self._ranks
        return () if ranks is None else ranks.pids

    @property
    def silent_s(self) -> float:
        """Seconds since the busy ranks last sent a message; 0 while they are idle."""
        ranks = self._ranks
        return 0.0 if ranks is None else ranks.silent_s

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the ranks after their requests or ``grace_s`` seconds. Idempotent."""
        until = time.monotonic() + grace_s
        while not self._lock.acquire(timeout=_LOOK_S):  # a restart owns the lock
            starting = self._starting
            if starting is not None and time.monotonic() >= until:
                starting.kill("the session was closed before the ranks were ready")
        try:
            self._is_closed = True
            ranks, self._ranks = self._ranks, None
            if ranks is not None:
                ranks.end(max(until - time.monotonic(), 0.0))
        finally:
            self._lock.release()
        self._blocks.clear()

    def restart(self) -> None:
        """Replace the ranks by new ranks; current requests fail. Raises `UserError`."""
        with self._lock:
            self.check_open()
            if self._ranks is not None:
                self._ranks.kill("the ranks were restarted")
            self._ranks = None  # until the new ranks are ready
            check_unchanged(self._plan)
            self._start()

    def _start(self) -> None:
        self._starting = ranks = Ranks(self._job, self._plan.ranks)
        try:
            ranks.get_ready()
            self._ranks = ranks
        finally:
            self._starting = None

    def call(
        self,
        message: Message,
        arrays: Mapping[str, Array] | None = None,
        room: Mapping[str, Wanted] | None = None,
    ) -> tuple[Message, dict[str, Array]]:
        """Send a request to the program; return its answer and the answer's arrays.

        All ranks read ``arrays``. ``room`` has the types and shapes of the answer's arrays, if
        known. Raises `UserError` if the program refuses, `RankFailedError` if ranks ended.
        """
        return exhaust(self.stream(message, arrays, room))

    def stream(
        self,
        message: Message,
        arrays: Mapping[str, Array] | None = None,
        room: Mapping[str, Wanted] | None = None,
    ) -> Generator[Message, None, tuple[Message, dict[str, Array]]]:
        """Yield rank 0's messages until the program answers, and return the result of `call`.

        Exhaust the generator: other requests wait for it, and closing it early ends the ranks.
        """
        ranks, arrays = self._running(), arrays or {}
        texts = {name: pack_texts(a) for name, a in arrays.items() if a.dtype.hasobject}
        staged = self._blocks.stage({n: a for n, a in arrays.items() if n not in texts})
        answer = self._blocks.allocate(room or {})
        asked = {
            "message": message,
            "arrays": {name: place.facts() for name, place in staged.places.items()},
            "room": {name: place.facts() for name, place in answer.places.items()},
            "texts": texts,
        }
        with ranks.slot():
            changes = partial(self._blocks.list_changes, (staged, answer))
            answers = yield from ranks.ask(asked, changes)
            parts = self._gather_parts(ranks, answers)
        found: Message = answers[0]["message"]
        return found, {**self._blocks.hand_out(answer), **parts}

    def empty(self, wanted: Mapping[str, Wanted]) -> dict[str, Array]:
        """Return uninitialised arrays that ranks read in place; strings are not shared."""
        texts = {name: shape for name, (dtype, shape) in wanted.items() if dtype.hasobject}
        rest = {name: kind for name, kind in wanted.items() if name not in texts}
        arrays = dict(self._blocks.allocate(rest).arrays)
        arrays.update({name: np.empty(shape, object) for name, shape in texts.items()})
        return {name: arrays[name] for name in wanted}

    def _running(self) -> Ranks:
        ranks = self._ranks
        if ranks is None:
            self.check_open()
            raise RankFailedError(f"{self._plan.folder}: the ranks have ended, expected a restart")
        if os.getpid() != self._owner:
            raise UserError(
                f"{self._plan.folder}: the session belongs to process {self._owner}, expected a "
                "session that was started after the fork"
            )
        return ranks

    def check_open(self) -> None:
        """Raise `UserError` if the session is closed."""
        if self._is_closed:
            raise UserError(f"{self._plan.folder}: the session is closed, expected a new one")

    def _gather_parts(self, ranks: Ranks, answers: Sequence[Message]) -> dict[str, Array]:
        """Return the arrays with types or shapes that only the ranks know, and strings."""
        texts: dict[str, Array] = {}
        for answer in answers:  # which contain the strings
            for name, (shape, boxes) in answer["texts"].items():
                array = texts.setdefault(name, np.empty(shape, object))
                for bounds, packed in boxes:
                    array[tuple(slice(*ends) for ends in bounds)] = unpack_texts(packed)
        parts: dict[str, Any] = {}
        for answer in answers:  # each stage has some of the outputs
            for name, facts in answer["parts"].items():
                if parts.setdefault(name, facts) != facts:
                    raise UserError("the ranks gave parts of different shapes or types")
        if not parts:
            return texts
        # The ranks write their parts of the other arrays once there is memory for the whole.
        room = self._blocks.allocate(
            {name: (dtype_of(dtype), tuple(shape)) for name, (dtype, shape) in parts.items()}
        )
        places = {name: place.facts() for name, place in room.places.items()}
        asked = {"put": places, "of": answers[0]["number"]}
        exhaust(ranks.ask(asked, partial(self._blocks.list_changes, (room,))))
        return {**texts, **self._blocks.hand_out(room)}


def check_unchanged(plan: Plan) -> None:
    """Raise `UserError` unless the folder of a loaded plan still has all its files unchanged."""
    Plan.load_description(plan.folder).check_unchanged(plan.sha256, REPLACED)
    plan.check_files()


def _refuse_ranks(plan: Plan) -> None:
    present = ranks_present()
    if present is not None and present[1] != 1:
        of = f" of {present[1]}" if present[1] else ""
        raise UserError(
            f"{plan.folder}: a session starts its ranks itself, on this machine, expected a "
            f"process without a launcher, got: rank {present[0]}{of} of another launcher"
        )
