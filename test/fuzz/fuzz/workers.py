"""Seeds tried in processes of their own, which may die or hang: others go on with the rest.

A worker is a command that tries seeds and says so in lines of JSON (:func:`say`), per seed the
events "generate", "try" and "done", each with its ``seed``.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

__all__ = ["Event", "find_modules", "run", "say"]

Event = dict[str, Any]
Command = Callable[[range], Sequence[str]]

_SILENCE_S = 180.0  # of a worker; then it hangs


def say(**event: Any) -> None:
    """Say what a worker does."""
    print(json.dumps(event), flush=True)


def find_modules() -> None:
    """Let a worker import what pytest finds by itself; last, as names here are also Python's."""
    root = Path(__file__).parents[3]
    sys.path += [str(root / "bench"), str(root / "test")]


def run(
    command: Command, seeds: range, jobs: int, seconds: float | None, note: Callable[[Event], None]
) -> None:
    """Try ``seeds`` in ``jobs`` processes, for at most ``seconds``.

    ``note`` is given every event "done", "given up" for a seed that ends its process while it is
    made, and "crash" with ``how`` for one that does so later, or hangs.
    """
    end = None if seconds is None else time.monotonic() + seconds
    lock = threading.Lock()

    def drive(job: int) -> None:
        for event in _events(command, seeds[job::jobs], end):
            with lock:
                note(event)

    threads = [threading.Thread(target=drive, args=(job,)) for job in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _events(command: Command, seeds: range, end: float | None) -> Iterator[Event]:
    """Yield what workers say of ``seeds``; one that dies or hangs is replaced for the rest."""
    while seeds and (end is None or time.monotonic() < end):
        worker = _Worker(command(seeds))
        stage, seed = "begin", seeds[0]
        for event in worker.events(end):
            stage, seed = event["event"], event["seed"]
            if stage == "done":
                yield event
        code = worker.end()
        if stage == "begin":  # neither would the next one
            yield {"event": "crash", "seed": seed, "how": f"no worker begins ({code})"}
            return
        left = [s for s in seeds if s > seed]
        seeds = range(left[0], seeds.stop, seeds.step) if left else range(0)
        if stage == "generate":
            yield {"event": "given up", "seed": seed}
        elif stage == "try":
            how = "hangs" if code is None else f"ends the process ({code})"
            yield {"event": "crash", "seed": seed, "how": how}


class _Worker:
    """A process that tries seeds."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.is_late = False

    def _read(self, stream: TextIO) -> None:
        with stream:
            for line in stream:
                self.lines.put(line)
        self.lines.put(None)

    def events(self, end: float | None) -> Iterator[Event]:
        """Yield until the worker ends, says nothing for long, or the time is over."""
        while True:
            try:
                line = self.lines.get(timeout=_SILENCE_S)
            except queue.Empty:
                self.is_late = True
                return
            if line is None:
                return
            event = json.loads(line)
            yield event
            if event["event"] == "done" and end is not None and time.monotonic() > end:
                return

    def end(self) -> int | None:
        """End the worker; return its status, ``None`` if it was silent for long."""
        if self.is_late or self.lines.empty():
            self.process.kill()
        code = self.process.wait()
        return None if self.is_late else code
