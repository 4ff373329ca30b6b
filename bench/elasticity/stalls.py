"""Stalls of a job's switches, alternately live and by stopping and resuming."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elasticity.runs import elastic_job, environment, wait_until
from elasticity.subjects import Subject
from tensoropt.elastic.api.client import Client
from tensoropt.elastic.control import SwitchResult

__all__ = ["MOVES", "Move", "Stall", "copied_per_s", "measure_stalls"]

MOVES = ("2", "2-lean", "2", "1")
"""Plans that a job switches to in sequence; it begins with plan 1."""

_STEPS = 100_000  # more than any run takes
_WARM = 3  # steps of a generation that are skipped
_SETTLED = 8  # steps before the next switch
_COPIED = 1 << 28  # bytes


@dataclass(frozen=True)
class Stall:
    """A switch; step times in seconds before it, during its preparation, and after it."""

    result: SwitchResult
    before_s: float
    meanwhile_s: float
    after_s: float


@dataclass(frozen=True)
class Move:
    """Switches from one plan to another, by method."""

    before: str
    after: str
    stalls: Mapping[str, Sequence[Stall]]

    def median_s(self, method: str) -> float:
        return statistics.median(stall.result.stall_s for stall in self.stalls[method])

    def phase_s(self, method: str, phase: str) -> float:
        return statistics.median(s.result.phases_s[phase] for s in self.stalls[method])

    @property
    def step_s(self) -> float:
        """The median time of a step, of the faster of the two plans."""
        live = self.stalls["live"]
        sides = ([s.before_s for s in live], [s.after_s for s in live])
        return min(map(statistics.median, sides))


def measure_stalls(subject: Subject, rounds: int, folder: Path) -> list[Move]:
    """Go through `MOVES` live and by stop-resume, ``rounds`` times."""
    pairs = list(zip(("1", *MOVES), MOVES, strict=False))
    found: list[dict[str, list[Stall]]] = [{"live": [], "stop-resume": []} for _ in pairs]
    given = environment(subject, folder / "reads")
    name = f"stalls-{subject.name}"
    with elastic_job(subject, name, _STEPS, 1, given, snapshot_every=0) as (client, _):
        for _ in range(rounds):
            for method in ("live", "stop-resume"):
                for (_, after), stalls in zip(pairs, found, strict=True):
                    stalls[method].append(_switch(client, subject, after, method))
    return [Move(*pair, stalls) for pair, stalls in zip(pairs, found, strict=True)]


def _switch(client: Client, subject: Subject, name: str, method: str) -> Stall:
    _settle(client)
    generation, step = client.status().generation, client.steps(0)[-1].step
    devices = subject.family.plan(name).devices
    result = client.scale(devices, plan=name, method=method)
    after_s = _settle(client)
    rows = [row for row in client.steps(0) if row.generation == generation]
    quiet = [r.time_s for r in rows if r.step <= step][_WARM:]
    meanwhile = [r.time_s for r in rows if r.step > step]
    before_s = statistics.median(quiet)
    return Stall(result, before_s, statistics.median(meanwhile or [before_s]), after_s)


def _settle(client: Client) -> float:
    """Wait until the generation has taken some steps; return their median time in seconds."""
    generation = client.status().generation

    def times() -> list[float]:
        return [r.time_s for r in client.steps(0) if r.generation == generation][_WARM:]

    wait_until(lambda: len(times()) >= _SETTLED)
    return statistics.median(times())


def copied_per_s() -> float:
    """Return the bytes per second of copying memory with one thread, the best of five runs."""
    source, target = np.ones(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return _COPIED / min(times)
