"""Compilation of the grammars of texts, in a thread of a rank, while other texts go on."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.text.grammar import NICE, STACK_BYTES, Grammars, Matcher

__all__ = ["Compiler", "Restriction"]


class Restriction:
    """Restricts the tokens of a text by its grammar, the one with this ``number`` on its rank."""

    def __init__(self, number: int) -> None:
        self.number, self.is_wanted = number, True
        self._matcher: Matcher | None = None

    def set(self, matcher: Matcher) -> None:
        """Set the compiled grammar."""
        self._matcher = matcher

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        """Return True for each of ``size`` tokens that may follow."""
        assert self._matcher is not None
        return self._matcher.allowed(size)

    def take(self, token: int) -> None:
        """Continue after a chosen token."""
        assert self._matcher is not None
        self._matcher.take(token)


class Compiler:
    """Compiles grammars in sequence, in a thread that leaves the processor to the rank's steps.

    The library releases the GIL for it. `compiled` is the number of grammars that are compiled;
    other ranks may have other numbers at a time.
    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars, self._asked = grammars, 0
        self._queue: queue.SimpleQueue[tuple[int, str, Restriction]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._progress = threading.Event()
        self._waiting: dict[int, Restriction] = {}
        self._failures: dict[int, tuple[int, Exception]] = {}
        self.compiled = 0

    def add(self, key: int, grammar: str) -> Restriction:
        """Return the restriction of text ``key``; earlier grammars are compiled first."""
        self._asked += 1
        restriction = self._waiting[key] = Restriction(self._asked)
        self._queue.put((key, grammar, restriction))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="grammars", daemon=True)
            _start(self._thread)
        return restriction

    def drop(self, keys: Iterable[int]) -> None:
        """Skip the compilation of the grammars of these texts."""
        waiting = {k: own for k, own in self._waiting.items() if own.number > self.compiled}
        for restriction in (waiting.pop(key, None) for key in keys):
            if restriction is not None:
                restriction.is_wanted = False
        self._waiting = waiting

    def drop_all(self) -> None:
        """Skip the compilation of all grammars."""
        self.drop([*self._waiting])

    def wait(self, timeout_s: float) -> None:
        """Return after the next grammar is compiled, or ``timeout_s`` seconds."""
        self._progress.wait(timeout_s)
        self._progress.clear()

    def _work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            key, grammar, restriction = self._queue.get()
            if restriction.is_wanted:
                try:
                    restriction.set(self._grammars.matcher(grammar))
                except Exception as error:  # ranks agree on it
                    self._failures[restriction.number] = key, error
            self.compiled += 1
            self._progress.set()

    def take_failures(self, number: int) -> list[tuple[int, Exception]]:
        """Return the texts among the first ``number`` grammars that failed here, and the errors.

        Each is returned once.
        """
        failed = [other for other in [*self._failures] if other <= number]
        return [self._failures.pop(other) for other in failed]


def _start(thread: threading.Thread) -> None:
    """Start a thread with a stack for grammars, which may be larger than a thread's by default."""
    before = threading.stack_size(STACK_BYTES)
    try:
        thread.start()
    finally:
        threading.stack_size(before)
