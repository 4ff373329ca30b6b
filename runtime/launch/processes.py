"""The processes of a job on this machine: its ranks, and the guardian that outlives the launcher.

The guardian is there first and goes last: whatever process of the job is killed, at whatever
moment, another one ends the rest and removes what they left.
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
_GRACE_S = 5.0  # for the guardian to have cleaned up
_OLD_S = 60.0  # a folder that is no older may belong to a launcher that has not locked it yet


class Processes:
    """A context in which ranks of one job run, in a new ``folder`` that goes with them.

    ``ranks`` are those of them that are here, of ``count``.
    """

    def __init__(self) -> None:
        """Make the folder and the guardian. Raises `UserError` where no rank can run."""
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
        self._lock = _locked(self.folder)

    def __enter__(self) -> Processes:
        return self

    def start(self, count: int, log: Path, *, talking: bool = False) -> None:
        """Start all ``count`` ranks of a job, whose output is added to ``log``.

        Where they are ``talking``, ``channels`` has a connection to each, open while it is used.
        Raises `UserError` if /dev/shm has too little room for them.
        """
        check_shared_memory(count)
        self.count = count
        with ExitStack() as stack, log.open("ab") as file:
            hub, ranks = _connected(count, stack)
            for rank, sockets in enumerate([hub, *ranks]):
                channel = self._channel(stack) if talking else []
                together = {
                    "TENSOROPT_SOCKETS": " ".join(map(str, sockets)),
                    CHANNEL: " ".join(map(str, channel)),
                    "TENSOROPT_JOB": self.folder.name,
                    # MPI listens on all networks, also where ranks share memory and nobody calls.
                    "UCX_NET_DEVICES": os.environ.get("UCX_NET_DEVICES", "lo"),
                }
                environment = {**os.environ, **together}
                self._start(rank, environment, [*sockets, *channel], file.fileno())

    def _channel(self, stack: ExitStack) -> list[int]:
        """Keep one end of a channel to the next rank, and return the other one's descriptor."""
        own, its = socket.socketpair()
        stack.enter_context(its)
        self.channels.append(Connection(own.detach()))
        return [its.fileno()]

    def start_one(self, rank: int, count: int, environment: Mapping[str, str], log: Path) -> None:
        """Start one rank of ``count``; ``environment`` says how it finds the others."""
        self.count = count
        with log.open("ab") as file:
            self._start(rank, environment, [], file.fileno())

    def _start(
        self, rank: int, environment: Mapping[str, str], sockets: list[int], log: int
    ) -> None:
        own = {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.count),
            # What the ranks' libraries leave behind (ONNX Runtime does) goes with the folder.
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
        """Wait until the ranks have ended in order or a process has ended otherwise.

        Returns False where that has not happened within ``seconds``.
        """
        end = time.monotonic() + seconds
        while not self._is_over():
            left = end - time.monotonic()
            if left <= 0 or not self._see_ends(left):
                return False
        return True

    def settle(self, seconds: float) -> None:
        """Wait for all ranks, which have heard that one has failed, but no longer than that."""
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
        """Return how each rank ended that has: its exit status, or less than 0 for a signal."""
        return {
            rank: process.wait() for rank, process in self.ranks.items() if process in self._ended
        }

    def lost_guardian(self) -> bool:
        """Say whether nobody would clean up after the launcher."""
        return self._guardian in self._ended

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes; they and the folder are gone afterwards."""
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


def _connected(count: int, stack: ExitStack) -> tuple[list[int], list[list[int]]]:
    """Return sockets by which rank 0 serves all others, and each other's two ends of them.

    One carries what the ranks tell each other, one is for MPI. Nobody else can reach them.
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


def _locked(folder: Path) -> int:
    """Lock a folder as long as this process lives or the returned descriptor is open."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_dead() -> None:
    """Remove the folders of jobs that lost every process at once: nobody locks these."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), ExitStack() as stack:
            _check_dead(folder, stack)
            guardian.clean(folder, 0)


def _check_dead(folder: Path, stack: ExitStack) -> None:
    """Lock the folder of a job; raises OSError where that is alive, may be, or is not ours."""
    facts = folder.stat(follow_symlinks=False)
    if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < _OLD_S:
        raise PermissionError
    stack.callback(os.close, _locked(folder))
