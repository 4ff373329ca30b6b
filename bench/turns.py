"""Several ways to do the same work, which take turns: all are ready, and all but one sleep.

Other work on the machine hits all of them, and a ratio of neighbouring turns hardly knows of it.
A way is a function of a `Place` and of its `Gate`; it runs in processes of its own, one per rank.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import secrets
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "Gate",
    "Place",
    "Team",
    "Turn",
    "Way",
    "busy_note",
    "mean_ratio",
    "ratio_of",
    "take_turns",
]

_SETTLE_S = 0.01
"""Between turns: threads that spin a while for more work have gone to sleep by then."""
_LEAVE_S = 10.0
_QUIET = 0.1
_LEAST_PORT, _PORTS = 20000, 10000


@dataclass(frozen=True)
class Place:
    """Which rank of how many a process is, and where they meet."""

    rank: int
    ranks: int
    port: int
    secret: str

    def announce(self) -> None:
        """Say so in the environment, where PyTorch and our library look for it."""
        facts = {"RANK": self.rank, "WORLD_SIZE": self.ranks, "MASTER_PORT": self.port}
        os.environ.update({name: str(value) for name, value in facts.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", TENSOROPT_SECRET=self.secret)
        os.environ.update(UCX_NET_DEVICES="lo", GLOO_SOCKET_IFNAME="lo")


class Gate:
    """Holds a rank back until its turn: asked before each step, it says whether to take one."""

    def __init__(self, channel: Connection) -> None:
        self._channel, self._left = channel, 0

    def __call__(self) -> bool:
        if not self._left:
            self._channel.send(None)  # ready, or done with the turn
            self._left = self._channel.recv()
        self._left -= 1
        return self._left >= 0


Way = Callable[[Place, Gate], Any]
"""Gets ready, takes a step each time the gate lets it, and then returns what it has to say."""


@dataclass(frozen=True)
class Turn:
    """Seconds of a step in one turn: of the slowest rank, and of the processors of all."""

    step_s: float
    cores_s: float


class Team:
    """The processes of one way, ready; a context that ends them.

    ``results`` are what the ranks returned, and ``peak_bytes`` what the largest process had
    resident; both are there after `finish`.
    """

    def __init__(self, way: Way, ranks: int) -> None:
        self.results: list[Any] = []
        self.peak_bytes = 0
        port = _free_port()
        spawn, secret = multiprocessing.get_context("spawn"), secrets.token_hex()
        self._channels: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(ranks):
            own, its = spawn.Pipe()
            place = Place(rank, ranks, port, secret)
            process = spawn.Process(target=_member, args=(way, place, its))
            process.start()
            its.close()
            self._channels.append(own)
            self._processes.append(process)

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def wait(self) -> list[Any]:
        """Return what each rank says next. Raises RuntimeError where one has ended."""
        try:
            return [channel.recv() for channel in self._channels]
        except (EOFError, OSError):
            raise RuntimeError("a rank has ended, see above") from None

    def turn(self, steps: int) -> Turn:
        """Take so many steps."""
        time.sleep(_SETTLE_S)
        before, begin = self._cores_s(), time.perf_counter()
        for channel in self._channels:
            channel.send(steps)
        self.wait()
        taken_s = time.perf_counter() - begin
        return Turn(taken_s / steps, (self._cores_s() - before) / steps)

    def finish(self) -> None:
        """End the ranks in order."""
        status = [_text(f"{pid}/status").splitlines() for pid in self._pids()]
        peaks = (int(line.split()[1]) for lines in status for line in lines if "VmHWM" in line)
        self.peak_bytes = max(peaks, default=0) << 10
        for channel in self._channels:
            channel.send(0)
        self.results = self.wait()
        for process in self._processes:
            process.join(_LEAVE_S)

    def _pids(self) -> list[int]:
        """Return the processes of the ranks, and those that they have started."""
        found = [process.pid for process in self._processes if process.pid is not None]
        for pid in found:  # which grows meanwhile
            for task in Path(f"/proc/{pid}/task").glob("*"):
                found += map(int, _text(f"{pid}/task/{task.name}/children").split())
        return found

    def _cores_s(self) -> float:
        fields = (_text(f"{pid}/stat").rpartition(")")[2].split() for pid in self._pids())
        return sum(int(f[11]) + int(f[12]) for f in fields if f) / os.sysconf("SC_CLK_TCK")


def _text(name: str) -> str:
    """Return a file in /proc, nothing where its process has ended."""
    try:
        return Path(f"/proc/{name}").read_text(encoding="utf-8")
    except OSError:
        return ""


def _free_port() -> int:
    """Return a port that is free, of those that the system gives to nobody by itself."""
    while True:
        port = _LEAST_PORT + secrets.randbelow(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _member(way: Way, place: Place, channel: Connection) -> None:
    channel.send(way(place, Gate(channel)))


def take_turns(
    ways: Mapping[str, tuple[Way, int]], rounds: int, steps: int, warm_up: int
) -> tuple[dict[str, list[Turn]], dict[str, Team]]:
    """Return the turns of each way, by its name, and its team, which has finished.

    ``ways`` are functions and their numbers of ranks. All take ``warm_up`` steps first, and then
    ``rounds`` turns of ``steps``; every second round goes backwards.
    """
    with ExitStack() as stack:
        teams = {name: stack.enter_context(Team(*way)) for name, way in ways.items()}
        for team in teams.values():
            team.wait()
        for team in teams.values():
            team.turn(warm_up)
        turns: dict[str, list[Turn]] = {name: [] for name in teams}
        for name in _order(list(teams), rounds):
            turns[name].append(teams[name].turn(steps))
        for team in teams.values():
            team.finish()
    return turns, teams


def _order(names: Sequence[str], rounds: int) -> Iterator[str]:
    for number in range(rounds):
        yield from reversed(names) if number % 2 else names


def ratio_of(turns: Sequence[Turn], base: Sequence[Turn]) -> float:
    """Return the time of ``turns`` over that of ``base``: the median of neighbouring turns."""
    return statistics.median(a.step_s / b.step_s for a, b in zip(turns, base, strict=True))


def mean_ratio(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def busy_note(busy: float) -> str:
    """Return what to say of figures while other work had the part ``busy`` of the cores."""
    note = f"Other work had {busy:.0%} of the cores."
    return note if busy < _QUIET else f"{note} To be measured again on a quiet machine."
