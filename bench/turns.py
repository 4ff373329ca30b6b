"""Interleaved measurement: contenders for the same work take turns, while the others sleep.

Other work on the machine affects all of them, so it hardly changes ratios of neighbouring turns. A
way is a function of a `Place` and of its `Gate`; it runs in its own processes, one per rank.
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
"""Pause between turns, in which spinning threads of the last contender fall asleep."""
_LEAVE_S = 10.0
_QUIET = 0.1
_LEAST_PORT, _PORTS = 20000, 10000


@dataclass(frozen=True)
class Place:
    """Rank of a process, number of ranks, and their rendezvous."""

    rank: int
    ranks: int
    port: int
    secret: str

    def announce(self) -> None:
        """Set the environment variables that PyTorch and our library read."""
        facts = {"RANK": self.rank, "WORLD_SIZE": self.ranks, "MASTER_PORT": self.port}
        os.environ.update({name: str(value) for name, value in facts.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", TENSOROPT_SECRET=self.secret)
        os.environ.update(UCX_NET_DEVICES="lo", GLOO_SOCKET_IFNAME="lo")


class Gate:
    """Blocks a rank until its turn: called before each step, it returns whether to run the step."""

    def __init__(self, channel: Connection) -> None:
        self._channel, self._left = channel, 0

    def __call__(self) -> bool:
        if not self._left:
            self._channel.send(None)  # ready, or finished with the turn
            self._left = self._channel.recv()
        self._left -= 1
        return self._left >= 0


Way = Callable[[Place, Gate], Any]
"""Initializes, runs a step whenever the gate opens, and then returns its results."""


@dataclass(frozen=True)
class Turn:
    """Seconds of a step in one turn: of the slowest rank, and of all processors together."""

    step_s: float
    cores_s: float


class Team:
    """The initialized processes of a way; a context manager that kills them.

    After `finish`, ``results`` are the values that the ranks returned, and ``peak_bytes`` is the
    peak resident memory of the largest process.
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
        """Return the next message of each rank. Raises RuntimeError if a rank has ended."""
        try:
            return [channel.recv() for channel in self._channels]
        except (EOFError, OSError):
            raise RuntimeError("a rank has ended, see above") from None

    def turn(self, steps: int) -> Turn:
        """Run ``steps`` steps on all ranks."""
        time.sleep(_SETTLE_S)
        before, begin = self._cores_s(), time.perf_counter()
        for channel in self._channels:
            channel.send(steps)
        self.wait()
        taken_s = time.perf_counter() - begin
        return Turn(taken_s / steps, (self._cores_s() - before) / steps)

    def finish(self) -> None:
        """End the ranks in an orderly way."""
        status = [_text(f"{pid}/status").splitlines() for pid in self._pids()]
        peaks = (int(line.split()[1]) for lines in status for line in lines if "VmHWM" in line)
        self.peak_bytes = max(peaks, default=0) << 10
        for channel in self._channels:
            channel.send(0)
        self.results = self.wait()
        for process in self._processes:
            process.join(_LEAVE_S)

    def _pids(self) -> list[int]:
        """Return the processes of the ranks, and all their descendants."""
        found = [process.pid for process in self._processes if process.pid is not None]
        for pid in found:  # grows in the loop
            for task in Path(f"/proc/{pid}/task").glob("*"):
                found += map(int, _text(f"{pid}/task/{task.name}/children").split())
        return found

    def _cores_s(self) -> float:
        fields = (_text(f"{pid}/stat").rpartition(")")[2].split() for pid in self._pids())
        return sum(int(f[11]) + int(f[12]) for f in fields if f) / os.sysconf("SC_CLK_TCK")


def _text(name: str) -> str:
    """Return the text of a file in /proc, empty if its process has ended."""
    try:
        return Path(f"/proc/{name}").read_text(encoding="utf-8")
    except OSError:
        return ""


def _free_port() -> int:
    """Return a free port outside the range of ephemeral ports."""
    while True:
        port = _LEAST_PORT + secrets.randbelow(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _member(way: Way, place: Place, channel: Connection) -> None:
    channel.send(way(place, Gate(channel)))


def take_turns(
    ways: Mapping[str, tuple[Way, int]], rounds: int, steps: int, warm_up: int
) -> tuple[dict[str, list[Turn]], dict[str, Team]]:
    """Return the turns of each way, by its name, and its finished team.

    ``ways`` are functions and their numbers of ranks. All take ``warm_up`` steps first, then
    ``rounds`` turns of ``steps``; every second round runs in reverse order.
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
    """Return the time of ``turns`` over ``base``: the median over neighbouring turns."""
    return statistics.median(a.step_s / b.step_s for a, b in zip(turns, base, strict=True))


def mean_ratio(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def busy_note(busy: float) -> str:
    """Return a note on figures taken while other work used the share ``busy`` of the cores."""
    note = f"Other work had {busy:.0%} of the cores."
    return note if busy < _QUIET else f"{note} To be measured again on a quiet machine."
