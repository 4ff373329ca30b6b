"""A limit for each request: when it has passed, the ranks end and say which one is where."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tensoropt.runtime.launch.oversight import ANSWER_S, PATIENCE_S, whereabouts
from tensoropt.runtime.ops import library

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["RANKS_END_S", "RequestLimit"]

RANKS_END_S = PATIENCE_S + 2 * ANSWER_S
"""How much longer than the limit ranks may take to end by themselves."""


class RequestLimit:
    """Calls ``end`` with what is wrong when a request takes more than ``seconds``; None: never.

    All ranks of ``comm`` make this together. Where rank 0 does not end them, another rank does.
    """

    def __init__(self, seconds: float | None, comm: MPI.Comm, end: Callable[[str], object]) -> None:
        self._seconds, self._comm, self._end = seconds, comm, end
        self._ends_at: float | None = None
        self._changed = threading.Condition()
        if seconds is not None:
            library.watch()
            threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Return a context for the work of one request."""
        if self._seconds is None:
            yield
            return
        self.count_anew()
        try:
            yield
        finally:
            self._set(None)

    def count_anew(self) -> None:
        """Let a request whose time is counted have the whole of it once more."""
        if self._seconds is not None:
            patience_s = PATIENCE_S if self._comm.rank else 0.0
            self._set(time.monotonic() + self._seconds + patience_s)

    def _set(self, ends_at: float | None) -> None:
        with self._changed:
            self._ends_at = ends_at
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while (left := self._left_s()) is None or left > 0:
                self._changed.wait(left)
        where = "rank 0 does not answer"
        if self._comm.rank == 0:
            where = whereabouts(library.ask(ANSWER_S), self._comm.size)
        self._end(f"no answer within {self._seconds:g} s: {where}")

    def _left_s(self) -> float | None:
        return None if self._ends_at is None else self._ends_at - time.monotonic()
