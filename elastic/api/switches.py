"""Switches that were asked for over HTTP, by number, so that who asked can come back."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from tensoropt.elastic.control import RefusedError, SwitchResult
from tensoropt.elastic.records import facts_of
from tensoropt.runtime.support.errors import one_line

__all__ = ["Switches"]

_KEPT = 1000


class Switches:
    """The last ones; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, Future[SwitchResult]] = {}
        self._last = 0

    def add(self, future: Future[SwitchResult]) -> int:
        """Return the number of a switch from now on."""
        with self._lock:
            self._last += 1
            self._futures[self._last] = future
            self._futures.pop(self._last - _KEPT, None)
            return self._last

    def future(self, number: int) -> Future[SwitchResult]:
        """Return the switch; raises `RefusedError` where there is none."""
        with self._lock:
            if number not in self._futures:
                raise RefusedError(f"switch {number}: unknown, expected one of 1 to {self._last}")
            return self._futures[number]

    def state(self, number: int) -> dict[str, Any]:
        """Return a `SwitchState`."""
        future = self.future(number)
        facts: dict[str, Any] = {"number": number, "state": "under way"}
        if not future.done():
            return {**facts, "result": None, "error": None}
        try:
            return {**facts, "state": "done", "result": facts_of(future.result()), "error": None}
        except Exception as failure:
            text = str(failure) if isinstance(failure, RefusedError) else one_line(failure)
            return {**facts, "state": "refused", "result": None, "error": text}
