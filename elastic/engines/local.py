"""The engine for one machine: generations are plain processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tensoropt.elastic.engines.engine import Carrier, Host, Outcome
from tensoropt.elastic.engines.keeper import GO, ROOM_BYTES
from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.generation.parts import Part, Parts
from tensoropt.runtime.support.arena import open_descriptor
from tensoropt.runtime.support.files import replace_private
from tensoropt.runtime.support.messages import Message

__all__ = ["LocalEngine"]

_GRACE_S = 10.0  # for a launcher to end its ranks


class LocalEngine:
    """An engine with ``count`` devices of this machine: its GPUs, or shares of its cores."""

    name = "local"

    def __init__(self, count: int, provider: str = "cpu") -> None:
        self._names = [f"{provider}:{number}" for number in range(count)]
        self._provider = provider

    def address(self, before: str | None) -> str:
        return before or f"@tensoropt-{uuid.uuid4().hex}"

    def devices(self) -> Sequence[str]:
        return self._names

    def start(
        self,
        job: GenerationJob,
        devices: Sequence[str],
        folder: Path,
        ended: Callable[[Outcome], None],
    ) -> Host:
        path = folder / f"generation{job.generation}.json"
        asked = {"kind": job.kind, "job": asdict(job), "output": str(folder / "output.log")}
        replace_private(path, json.dumps(asked) + " " * ROOM_BYTES)
        environment = dict(os.environ)
        if self._provider == "cuda":
            numbers = (device.partition(":")[2] for device in devices)
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(numbers)
        with (folder / "output.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tensoropt.elastic.engines.keeper", str(path)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # it outlives the coordinator and gets no Ctrl-C
            )
        return _LocalHost(process.pid, path, ended, process)

    def find(
        self, facts: Mapping[str, Any], folder: Path, ended: Callable[[Outcome], None]
    ) -> Host | None:
        pid, path = int(facts["pid"]), folder / str(facts["file"])
        if started_at(pid) != facts["started_at"]:
            return None
        return _LocalHost(pid, path, ended, None)

    def carrier(self, parts: Parts, plan: str, nodes: Sequence[str]) -> Carrier:
        return _InPlace(parts, len(nodes))

    def hold(self, parts: Sequence[Part]) -> list[Part]:
        own = os.getpid()
        return [
            Part(replace(part.block, pid=own, fd=open_descriptor(part.block))) for part in parts
        ]

    def drop(self, parts: Iterable[Part]) -> None:
        for part in parts:
            os.close(part.block.fd)

    def spread(self, parts: Parts) -> Future[Parts | None]:
        """Return the parts unchanged: with one node, no copy could outlive it."""
        future: Future[Parts | None] = Future()
        future.set_result(parts)
        return future

    def close(self) -> None:
        """Do nothing: the engine has no resources."""


class _InPlace:
    """A carrier on one machine: ranks read the state in place."""

    carried_bytes = 0

    def __init__(self, parts: Parts, ranks: int) -> None:
        blocks = [part.block.facts() for part in parts.parts]
        order: Message = {"plan": parts.plan, "blocks": blocks, "distances": [0.0] * len(blocks)}
        self.orders: Sequence[Message] = [order] * ranks

    def carry(self) -> None:
        """Do nothing: the state is on this machine."""

    def close(self) -> None:
        """Do nothing: there are no copies."""


class _LocalHost:
    def __init__(
        self,
        pid: int,
        path: Path,
        ended: Callable[[Outcome], None],
        process: subprocess.Popen[bytes] | None,
    ) -> None:
        self._pid, self._path, self._process = pid, path, process
        self._started_at = started_at(pid)
        self._descriptor = os.pidfd_open(pid)
        self._over = threading.Event()
        threading.Thread(target=self._wait, args=(ended,), daemon=True).start()

    def facts(self) -> dict[str, Any]:
        return {"pid": self._pid, "file": self._path.name, "started_at": self._started_at}

    def begin(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(GO)

    def kill(self) -> None:
        """End the launcher, which ends its ranks; if it is too slow, kill it: its guardian ends
        them."""
        for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)
            if self._over.wait(patience_s):
                return

    def _wait(self, ended: Callable[[Outcome], None]) -> None:
        select.select([self._descriptor], [], [])
        if self._process is not None:
            self._process.wait()
        self._over.set()
        ended(_outcome(self._path))


def _outcome(path: Path) -> Outcome:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    path.unlink(missing_ok=True)
    if "result" in found or "error" in found:
        return {name: found[name] for name in ("result", "error") if name in found}
    return {"error": "its launcher was killed"}


def started_at(pid: int) -> int | None:
    """Return the start time of a process, in ticks since boot; None if no process has this pid.

    The pid and the start time together identify a process, as pids are reused.
    """
    try:
        facts = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = facts.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
