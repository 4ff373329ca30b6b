"""The processes of a job on this machine: its ranks, and the guardian that outlives the launcher.

The guardian starts first and ends last. If any process of the job is killed, at any time, another
process ends the rest and removes their files.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from tensoropt.runtime.launch import guardian
from tensoropt.runtime.launch.link import CHANNEL
from tensoropt.runtime.launch.shared_memory import check_shared_memory
from tensoropt.runtime.ops import library_path

__all__ = ["Processes"]

_PREFIX = "tensoropt-run-"
_GRACE_S = 5.0  # for the guardian to clean up
_OLD_S = 60.0  # a younger folder may belong to a launcher that has not locked it yet


class Processes:
    """A context for the ranks of one job, in a new ``folder`` that is removed on exit.

    ``ranks`` are the ranks on this machine, of ``count`` in all.
    """

    def __init__(self) -> None:
        """Create the folder and the guardian. Raises `UserError` if no rank can run here."""
        library_path()
        _remove_dead()
        self.folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{uuid.uuid4().hex}"
        self.count = 0
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.channels: list[Connection] = []
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # a Ctrl-C reaches the launcher only, which then ends the ranks
        )
        self._ends = select.poll()
        self._watched: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: list[subprocess.Popen[bytes]] = []
        self._watch(self._guardian)
        self.folder.mkdir(mode=0o700)
        self._lock = _lock_folder(self.folder)

    def __enter__(self) -> Processes:
        return self

    def start(self, count: int, log: Path, *, talking: bool = False) -> None:
        """Start all ``count`` ranks of a job, with their output appended to ``log``.

        With ``talking``, ``channels`` has a connection to each rank, which its user must close.
        Raises `UserError` if /dev/shm is too small for them.
        """
        check_shared_memory(count)
        self.count = count
        with ExitStack() as stack, log.open("ab") as file:
            hub, ranks = _connect(count, stack)
            for rank, sockets in enumerate([hub, *ranks]):
                channel = self._channel(stack) if talking else []
                together = {
                    "TENSOROPT_SOCKETS": " ".join(map(str, sockets)),
                    CHANNEL: " ".join(map(str, channel)),
                    "TENSOROPT_JOB": self.folder.name,
                    # By default MPI listens on all networks, even if ranks only share memory.
                    "UCX_NET_DEVICES": os.environ.get("UCX_NET_DEVICES", "lo"),
                }
                environment = {**os.environ, **together}
                self._start(rank, environment, [*sockets, *channel], file.fileno())

    def _channel(self, stack: ExitStack) -> list[int]:
        """Keep one end of a channel to the next rank, and return the descriptor of the other."""
        own, its = socket.socketpair()
        stack.enter_context(its)
        self.channels.append(Connection(own.detach()))
        return [its.fileno()]

    def start_one(self, rank: int, count: int, environment: Mapping[str, str], log: Path) -> None:
        """Start one rank of ``count``; it finds the others through ``environment``."""
        self.count = count
        with log.open("ab") as file:
            self._start(rank, environment, [], file.fileno())

    def _start(
        self, rank: int, environment: Mapping[str, str], sockets: list[int], log: int
    ) -> None:
        own = {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.count),
            # Files that libraries leave, as ONNX Runtime does, are removed with the folder.
            "TMPDIR": str(self.folder),
        }
        self.ranks[rank] = subprocess.Popen(
            [sys.executable, "-P", "-m", "tensoropt.runtime.launch.rank", str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment, **own},
            pass_fds=sockets,
            process_group=self._guardian.pid,
        )
        self._watch(self.ranks[rank])

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        descriptor = os.pidfd_open(process.pid)
        self._watched[descriptor] = process
        self._ends.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait until all ranks have ended in order, or any process has failed.

        Returns False if neither has happened within ``seconds``.
        """
        end = time.monotonic() + seconds
        while not self._is_over():
            left = end - time.monotonic()
            if left <= 0 or not self._see_ends(left):
                return False
        return True

    def settle(self, seconds: float) -> None:
        """Wait at most ``seconds`` for the end of all ranks, after one has failed."""
        end = time.monotonic() + seconds
        while len(self.codes()) < len(self.ranks) and time.monotonic() < end:
            self._see_ends(max(end - time.monotonic(), 0.0))

    def _see_ends(self, seconds: float) -> bool:
        found = self._ends.poll(min(seconds, 3600.0) * 1000)
        for descriptor, _ in found:
            self._ends.unregister(descriptor)
            os.close(descriptor)
            self._ended.append(self._watched.pop(descriptor))
        return bool(found)

    def _is_over(self) -> bool:
        codes = self.codes()
        return self.lost_guardian() or any(codes.values()) or len(codes) == len(self.ranks)

    def codes(self) -> dict[int, int]:
        """Return the exit status of each rank that has ended, negative for a signal."""
        return {
            rank: process.wait() for rank, process in self.ranks.items() if process in self._ended
        }

    def lost_guardian(self) -> bool:
        """Return whether the guardian has ended, so that nobody cleans up after the launcher."""
        return self._guardian in self._ended

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes and remove the folder."""
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        if self.lost_guardian() or not self._guardian_ends():
            guardian.clean(self.folder, self._guardian.pid)
        for process in self.ranks.values():
            process.wait()
        for descriptor in (*self._watched, self._lock):
            os.close(descriptor)

    def _guardian_ends(self) -> bool:
        try:
            return self._guardian.wait(_GRACE_S) == 0
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            self._guardian.wait()
            return False


def _connect(count: int, stack: ExitStack) -> tuple[list[int], list[list[int]]]:
    """Return rank 0's sockets to all other ranks, and for each other rank its own two ends.

    One of the two carries the messages between ranks, the other is for MPI. No other process can
    connect to them.
    """
    hub: list[int] = []
    ranks: list[list[int]] = []
    for _ in range(count - 1):
        pairs = [socket.socketpair() for _ in range(2)]
        for end in (end for pair in pairs for end in pair):
            stack.enter_context(end)
        hub += [pair[0].fileno() for pair in pairs]
        ranks.append([pair[1].fileno() for pair in pairs])
    return hub, ranks


def _lock_folder(folder: Path) -> int:
    """Lock a folder as long as this process lives or the returned descriptor is open."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_dead() -> None:
    """Remove the folders of jobs that lost all processes at the same time: they are unlocked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), ExitStack() as stack:
            facts = folder.stat(follow_symlinks=False)
            if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < _OLD_S:
                continue
            stack.callback(os.close, _lock_folder(folder))  # raises OSError if the job is alive
            guardian.clean(folder, 0)
