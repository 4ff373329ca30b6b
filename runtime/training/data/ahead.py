"""Prefetching of batches: reads following batches while a batch is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tensoropt.runtime.training.data.source import Batch

__all__ = ["Ahead"]

_DEPTH = 2


class Ahead:
    """A thread that reads the requested batch and prefetches the next ``depth`` batches.

    ``following`` returns the position of the batch after one. Batches that begin at ``end`` or
    later are not prefetched. A read error is raised when its batch is requested.
    """

    def __init__(
        self,
        read: Callable[[int], Batch],
        following: Callable[[int], int],
        end: int,
        depth: int = _DEPTH,
    ) -> None:
        self._read, self._following, self._end, self._depth = read, following, end, depth
        self._pool = ThreadPoolExecutor(1, "data")
        self._found: deque[tuple[int, Future[Batch]]] = deque()

    def start(self, position: int) -> None:
        """Start to read the batch at ``position`` and the following batches."""
        if not self._found or self._found[0][0] != position:
            for _, future in self._found:
                future.cancel()
            self._found.clear()
            self._submit(position)
        while len(self._found) <= self._depth:
            following = self._following(self._found[-1][0])
            if following >= self._end:
                break
            self._submit(following)

    def get(self, position: int) -> Batch:
        """Return the batch at ``position``. The next request should be the following batch."""
        self.start(position)
        return self._found.popleft()[1].result()

    def _submit(self, position: int) -> None:
        self._found.append((position, self._pool.submit(self._read, position)))
