"""Overhead of a coordinator and of snapshots per step.

The ways to train take turns of some steps. All are running, but only one of them is not stopped, so
that other work on the machine affects all of them equally. Processor time is of all processes of a
way, including its coordinator.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from elasticity.runs import elastic_job, environment, plain_command, wait_until
from elasticity.source import reads_of
from elasticity.subjects import Subject

__all__ = ["SNAPSHOT_EVERY", "WAYS", "Way", "added_share", "measure_overhead", "quartiles"]

WAYS = ("tensoropt-run", "coordinator", "with snapshots")
SNAPSHOT_EVERY = 5
"""Steps: often, so that every turn has several; results are scaled to one in 50 steps."""

_STEPS = 1_000_000  # more than any run takes
_TURN = 10  # least number of steps
_TURN_S = 0.5  # least duration
_FIRST = 2  # steps of a turn that are skipped: one was in progress
_LOOKED_AT = 3  # steps that every rank has taken before the turns begin


@dataclass
class Way:
    """Turns of a way to train: elapsed and processor seconds per step, and the steps."""

    pids: Sequence[int]
    root: int
    record: Path
    turns_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    steps: int = 0

    def turn(self) -> None:
        """Let this way run for a while."""
        before, start = _cpu_s(self.root), time.monotonic()
        self.signal(signal.SIGCONT)
        time.sleep(_TURN_S)
        wait_until(lambda: len(self._since(start)) >= _TURN)
        self.signal(signal.SIGSTOP)
        times = self._since(start)
        self.steps += len(times)
        self.cpu_s.append((_cpu_s(self.root) - before) / len(times))
        times = times[_FIRST:]
        self.turns_s.append((times[-1] - times[0]) / (len(times) - 1))

    def _since(self, start: float) -> list[float]:
        return [read.time for read in reads_of(self.record) if read.time >= start]

    def signal(self, number: int) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def measure_overhead(subject: Subject, plan: str, rounds: int, folder: Path) -> dict[str, Way]:
    """Let all `WAYS` to train a plan take turns, ``rounds`` times; each rank has one thread."""
    with ExitStack() as stack:
        ways: dict[str, Way] = {}
        for number, name in enumerate(WAYS):
            place = folder / f"way{number}"
            root = stack.enter_context(_start(subject, plan, name, place))
            ways[name] = way = _wait_for_ranks(root, subject.family.plan(plan).devices, place)
            stack.callback(way.signal, signal.SIGCONT)
            way.signal(signal.SIGSTOP)
        for _ in range(rounds):
            for way in ways.values():
                way.turn()
    return ways


@contextmanager
def _start(subject: Subject, plan: str, name: str, place: Path) -> Iterator[int]:
    """Run one way to train inside a with statement; yield its root process."""
    given = environment(subject, place)
    if name == WAYS[0]:
        command = plain_command(subject, plan, _STEPS, place.with_suffix(".jsonl"), threads=1)
        process = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()
        return
    every = SNAPSHOT_EVERY if name == WAYS[2] else 0
    options = {"plan": plan, "threads": 1, "snapshot_every": every}
    devices = subject.family.plan(plan).devices
    job = f"overhead-{subject.name}-{place.name}"
    with elastic_job(subject, job, _STEPS, devices, given, **options) as (_, pid):
        yield pid


def _wait_for_ranks(root: int, ranks: int, place: Path) -> Way:
    """Wait until all ranks train, and return them."""

    def training() -> list[Path]:
        return [path for path in place.iterdir() if len(reads_of(path)) > _LOOKED_AT]

    wait_until(lambda: len(training()) == ranks)
    paths = training()
    return Way([int(path.name) for path in paths], root, paths[0])


def _cpu_s(root: int) -> float:
    """Return the processor time of a process and its descendants, in seconds."""
    return sum(map(_own_cpu_s, _descendants(root)))


def _descendants(root: int) -> Iterator[int]:
    yield root
    for path in Path(f"/proc/{root}/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                yield from _descendants(int(child))


def _own_cpu_s(pid: int) -> float:
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(path.read_text().split()[0])
    return total / 1e9


def added_share(ways: Mapping[str, Way], name: str, *, cpu: bool) -> float:
    """Return the median overhead of a way over tensoropt-run, as a part of a step."""
    return statistics.median(_ratios(ways, name, cpu=cpu)) - 1


def quartiles(ways: Mapping[str, Way], name: str) -> tuple[float, float]:
    """Return the quartiles of turns of the elapsed overhead that `added_share` is the median of."""
    low, _, high = statistics.quantiles(_ratios(ways, name, cpu=False), n=4)
    return low - 1, high - 1


def _ratios(ways: Mapping[str, Way], name: str, *, cpu: bool) -> list[float]:
    way, plain = (w.cpu_s if cpu else w.turns_s for w in (ways[name], ways[WAYS[0]]))
    return [a / b for a, b in zip(way, plain, strict=True)]
