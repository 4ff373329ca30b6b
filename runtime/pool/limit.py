"""A time limit per request, after which the ranks end and report their whereabouts."""

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

__all__ = ["RequestLimit"]


class RequestLimit:
    """Calls ``end`` with an error message when a request exceeds ``seconds``; None sets no limit.

    A collective constructor over ``comm``. If rank 0 does not end the ranks, another rank does.
    A request only stores its deadline, without waking the watcher thread, which would cost as much
    as the rest of a small request.
    """

    def __init__(self, seconds: float | None, comm: MPI.Comm, end: Callable[[str], object]) -> None:
        self._seconds, self._comm, self._end = seconds, comm, end
        self._ends_at: float | None = None
        if seconds is not None:
            self._allowed_s = seconds + (PATIENCE_S if comm.rank else 0.0)
            library.watch()
            threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Limit the time of one request, in a context."""
        if self._seconds is None:
            yield
            return
        self.extend()
        try:
            yield
        finally:
            self._ends_at = None

    def extend(self) -> None:
        """Restart the time limit of the current request."""
        if self._seconds is not None:
            self._ends_at = time.monotonic() + self._allowed_s

    def _watch(self) -> None:
        left_s = self._allowed_s
        while left_s > 0:
            time.sleep(left_s)
            ends_at = self._ends_at  # another thread changes it
            # A request that starts from now on cannot be late before the whole limit has passed.
            left_s = self._allowed_s if ends_at is None else ends_at - time.monotonic()
        where = "rank 0 does not answer"
        if self._comm.rank == 0:
            where = whereabouts(library.ask(ANSWER_S), self._comm.size)
        self._end(f"no answer within {self._seconds:g} s: {where}")
