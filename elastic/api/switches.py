"""Switches that were requested over HTTP, by number, so that clients can poll them."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from tensoropt.elastic.control import RefusedError, SwitchResult
from tensoropt.elastic.records import facts_of
from tensoropt.runtime.support.errors import one_line

__all__ = ["Switches"]

_LIMIT = 1000


class Switches:
    """The last 1000 switches; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, Future[SwitchResult]] = {}
        self._last = 0

    def add(self, future: Future[SwitchResult]) -> int:
        """Store a switch and return its number."""
        with self._lock:
            self._last += 1
            self._futures[self._last] = future
            self._futures.pop(self._last - _LIMIT, None)
            return self._last

    def future(self, number: int) -> Future[SwitchResult]:
        """Return the switch. Raises `RefusedError` for an unknown number."""
        with self._lock:
            if number not in self._futures:
                raise RefusedError(f"switch {number}: unknown, expected one of 1 to {self._last}")
            return self._futures[number]

    def state(self, number: int) -> dict[str, Any]:
        """Return the fields of a `SwitchState`."""
        future = self.future(number)
        facts: dict[str, Any] = {"number": number, "state": "under way"}
        if not future.done():
            return {**facts, "result": None, "error": None}
        try:
            return {**facts, "state": "done", "result": facts_of(future.result()), "error": None}
        except Exception as failure:
            text = str(failure) if isinstance(failure, RefusedError) else one_line(failure)
            return {**facts, "state": "refused", "result": None, "error": text}
