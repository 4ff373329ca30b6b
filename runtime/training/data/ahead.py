"""Batches that are read while the ones before them are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tensoropt.runtime.training.data.source import Batch

__all__ = ["Ahead"]

_DEPTH = 2


class Ahead:
    """Reads batches in a thread: the one that is asked for and the ``depth`` that follow it.

    Batches are ``size`` samples apart. None is read that begins at ``end`` or later, unless it is
    asked for. An error is raised where the batch that it befell is asked for.
    """

    def __init__(
        self, read: Callable[[int], Batch], size: int, end: int, depth: int = _DEPTH
    ) -> None:
        self._read, self._size, self._end, self._depth = read, size, end, depth
        self._pool = ThreadPoolExecutor(1, "data")
        self._found: deque[tuple[int, Future[Batch]]] = deque()

    def start(self, position: int) -> None:
        """Begin to read the batch at ``position`` and those that follow it."""
        if not self._found or self._found[0][0] != position:
            self._drop()
            self._submit(position)
        while len(self._found) <= self._depth:
            following = self._found[-1][0] + self._size
            if following >= self._end:
                break
            self._submit(following)

    def get(self, position: int) -> Batch:
        """Return the batch at ``position``; the one after it is expected to be asked for next."""
        self.start(position)
        return self._found.popleft()[1].result()

    def _submit(self, position: int) -> None:
        self._found.append((position, self._pool.submit(self._read, position)))

    def _drop(self) -> None:
        """Forget what was read for positions that nobody asked for."""
        for _, future in self._found:
            future.cancel()
        self._found.clear()
