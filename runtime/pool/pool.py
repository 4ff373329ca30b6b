"""A pool: ranks that stay, and answer requests of the process that started them."""

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
from tensoropt.runtime.pool.job import REPLACED, PoolJob
from tensoropt.runtime.pool.places import packed_texts, unpacked_texts
from tensoropt.runtime.pool.ranks import Ranks, last
from tensoropt.runtime.session.session import check_custom_ops
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.support.settings import check_settings

__all__ = ["GRACE_S", "Pool", "check_unchanged", "start"]

GRACE_S = 30.0
"""How long ranks may be at work when they are to end: as long as a server waits (``--grace``)."""

_LOOK_S = 0.1  # between two looks at whether a restart is over


def start(
    plan: Plan,
    program: str,
    options: Mapping[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
    ready_s: float | None = None,
    **settings: Any,
) -> Pool:
    """Return ranks of ``plan`` that answer requests by a program, once they are ready.

    ``program`` is one of `programs.PROGRAMS` and takes ``options``, as JSON. A request fails after
    ``timeout_s``, and getting ready after ``ready_s``, which is ``timeout_s`` where it is None.
    ``settings`` are fields of `PoolJob`: threads, provider, share_gpus, cuda_graphs, custom_ops.

    Raises `UserError` where the ranks do not get ready.
    """
    check_settings(settings, timeout_s, ready_s)
    folder = str(plan.folder.absolute())
    job = PoolJob(
        folder,
        program,
        dict(options or {}),
        sha256=plan.sha256,
        answer_s=timeout_s,
        ready_s=ready_s,
        **settings,
    )
    return Pool(plan, job)


class Pool(Closing):
    """Running ranks; a context that ends them. From any thread: requests queue."""

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
    def is_alive(self) -> bool:
        """Whether all ranks are there."""
        ranks = self._ranks
        return ranks is not None and ranks.is_alive()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the ranks, by rank; none where they ended."""
        ranks = self._ranks
        return () if ranks is None else ranks.pids

    @property
    def silent_s(self) -> float:
        """For how many seconds ranks that are at work have said nothing; 0 while they sleep."""
        ranks = self._ranks
        return 0.0 if ranks is None else ranks.silent_s

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the ranks, after what they are at or in ``grace_s`` seconds; again is no error."""
        until = time.monotonic() + grace_s
        while not self._lock.acquire(timeout=_LOOK_S):  # a restart has it
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
        """Start the ranks anew; what those are at that are there fails. Raises `UserError`."""
        with self._lock:
            if self._is_closed:
                raise self._closed()
            if self._ranks is not None:
                self._ranks.kill("the ranks were started anew")
            self._ranks = None  # until there are others
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
        """Ask the program something; returns its answer and the arrays that go with it.

        All ranks see the ``arrays``; ``room`` says type and shape of arrays in the answer, of
        those that are known. Raises `UserError` where the program refuses, `RankFailedError`
        where ranks ended.
        """
        return last(self.heard(message, arrays, room))

    def heard(
        self,
        message: Message,
        arrays: Mapping[str, Array] | None = None,
        room: Mapping[str, Wanted] | None = None,
    ) -> Generator[Message, None, tuple[Message, dict[str, Array]]]:
        """Return a generator of what rank 0 tells while the program answers, which `call` returns.

        It is to be run to its end: others wait for that, and ranks are ended where it is closed.
        """
        ranks, arrays = self._running(), arrays or {}
        texts = {name: packed_texts(a) for name, a in arrays.items() if a.dtype.hasobject}
        staged = self._blocks.staged({n: a for n, a in arrays.items() if n not in texts})
        answer = self._blocks.room(room or {})
        asked = {
            "message": message,
            "arrays": {name: place.facts() for name, place in staged.places.items()},
            "room": {name: place.facts() for name, place in answer.places.items()},
            "texts": texts,
        }
        with ranks.slot():
            answers = yield from ranks.ask(asked, partial(self._blocks.news, (staged, answer)))
            parts = self._parts(ranks, answers)
        found: Message = answers[0]["message"]
        return found, {**self._blocks.given(answer), **parts}

    def empty(self, wanted: Mapping[str, Wanted]) -> dict[str, Array]:
        """Return arrays that ranks read in place, without values; strings are not shared."""
        texts = {name: shape for name, (dtype, shape) in wanted.items() if dtype.hasobject}
        rest = {name: one for name, one in wanted.items() if name not in texts}
        arrays = dict(self._blocks.room(rest).arrays)
        arrays.update({name: np.empty(shape, object) for name, shape in texts.items()})
        return {name: arrays[name] for name in wanted}

    def _running(self) -> Ranks:
        ranks = self._ranks
        if ranks is None:
            raise self._closed() if self._is_closed else self._gone()
        if os.getpid() != self._owner:
            raise UserError(
                f"{self._plan.folder}: the session is that of process {self._owner}, expected one "
                "that was started after the fork"
            )
        return ranks

    def _closed(self) -> UserError:
        return UserError(f"{self._plan.folder}: the session is closed")

    def _gone(self) -> RankFailedError:
        return RankFailedError(f"{self._plan.folder}: the ranks are not there, expected a restart")

    def _parts(self, ranks: Ranks, answers: Sequence[Message]) -> dict[str, Array]:
        """Return the arrays of which only the ranks knew what they are."""
        texts = _joined_texts(answers)
        wanted = _wanted(answers)
        if not wanted:
            return texts
        room = self._blocks.room(wanted)
        places = {name: place.facts() for name, place in room.places.items()}
        asked = {"put": places, "of": answers[0]["number"]}
        last(ranks.ask(asked, partial(self._blocks.news, (room,))))
        return {**texts, **self._blocks.given(room)}


def check_unchanged(plan: Plan) -> None:
    """Raise `UserError` unless the folder of a loaded plan still has all of its files."""
    Plan.described(plan.folder).check_unchanged(plan.sha256, REPLACED)
    plan.check_files()


def _refuse_ranks(plan: Plan) -> None:
    present = ranks_present()
    if present is not None and present[1] != 1:
        of = f" of {present[1]}" if present[1] else ""
        raise UserError(
            f"{plan.folder}: a session starts its ranks by itself, on this machine, expected a "
            f"process on its own, got: rank {present[0]}{of} of another launcher"
        )


def _wanted(answers: Sequence[Message]) -> dict[str, Wanted]:
    """Return type and shape of the arrays whose parts all ranks have."""
    if any(answer["parts"] != answers[0]["parts"] for answer in answers):
        raise UserError("the ranks gave parts of different shapes or types")
    entries = answers[0]["parts"].items()
    return {name: (dtype_of(dtype), tuple(shape)) for name, (dtype, shape) in entries}


def _joined_texts(answers: Sequence[Message]) -> dict[str, Array]:
    """Return the arrays of strings, which come in the answers themselves."""
    whole: dict[str, Array] = {}
    for answer in answers:
        for name, (shape, bounds, packed) in answer["texts"].items():
            array = whole.setdefault(name, np.empty(shape, object))
            array[tuple(slice(*ends) for ends in bounds)] = unpacked_texts(packed)
    return whole
