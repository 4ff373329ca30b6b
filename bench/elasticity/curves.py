"""Loss curve of a job that changes its devices at random, compared with an unbroken run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from elasticity.runs import elastic_job, environment, losses_in, plain_command, wait_until
from elasticity.source import HOLD, Read, reads_of
from elasticity.subjects import Subject
from tensoropt.elastic.api.client import Client
from tensoropt.elastic.control import Event, StepRow, SwitchResult
from tensoropt.runtime.family.family import Family, FamilyPlan

__all__ = ["Curve", "drawn", "reads_differ", "run_curve"]

_PACE_S = 0.1
_OPTIONS = {"shuffle": 7, "seed": 3, "warmup": 10, "schedule": "cosine"}


@dataclass(frozen=True)
class Curve:
    """Losses of each step, the switches, and the error in the samples read, if any."""

    unbroken: Sequence[float]
    rows: Sequence[StepRow]
    switches: Sequence[SwitchResult]
    samples: int
    wrong: str | None = None

    @property
    def difference(self) -> float:
        """The largest relative difference of two losses of one step."""
        found, held = np.array([row.loss for row in self.rows]), np.array(self.unbroken)
        assert found.shape == held.shape, "a loss for each step"
        return float(np.max(np.abs(found - held) / np.abs(held)))


def run_curve(subject: Subject, steps: int, switches: Mapping[int, str], folder: Path) -> Curve:
    """Train ``steps`` steps twice: on one device, and with ``switches`` to plans after steps.

    A switch is delayed if the steps taken before it could begin exceed its step.
    """
    plans = {step: subject.family.plan(name) for step, name in switches.items()}
    batches, losses = _unbroken(subject, steps, folder / "unbroken")
    place = folder / "reads"
    given = environment(subject, place, _PACE_S)
    (place / HOLD).touch()
    with elastic_job(subject, f"curve-{subject.name}", steps, 1, given, **_OPTIONS) as (client, _):
        ride = _Ride(client, place / HOLD)
        ride.look()
        for step, plan in plans.items():
            ride.go_to(step)
            ride.switch(plan)
        ride.go_to(steps)
        wait_until(lambda: client.status().state == "ended")
        rows = client.steps(0)
    read = {number: [reads_of(place / str(pid)) for pid in p] for number, p in ride.pids.items()}
    wrong = reads_differ(batches, rows, read)
    return Curve(losses, rows, ride.switches, sum(map(len, batches)), wrong)


def _unbroken(subject: Subject, steps: int, folder: Path) -> tuple[list[list[int]], list[float]]:
    """Return the samples of each step, in order, and its loss."""
    given = environment(subject, folder)
    log = folder.parent / "unbroken.jsonl"
    command = plain_command(subject, "1", steps, log, **_OPTIONS)
    subprocess.run(command, check=True, capture_output=True, env=given)
    reads = max((reads_of(path) for path in folder.iterdir()), key=len)
    return [read.ids for read in reads[:steps]], losses_in(log)


@dataclass
class _Ride:
    """A job that is switched; ``pids`` are the processes of each generation, in order of ranks."""

    client: Client
    hold: Path
    switches: list[SwitchResult] = field(default_factory=list)
    pids: dict[int, list[int]] = field(default_factory=dict)

    def look(self) -> None:
        status = self.client.status()
        self.pids[status.generation] = [rank.pid for rank in status.ranks if rank.pid is not None]

    def go_to(self, step: int) -> None:
        """Let the job take steps until ``step``, if it has not reached it."""
        self.hold.unlink()
        wait_until(lambda: bool(self.client.steps(step - 1, 1)))
        self.hold.touch()

    def switch(self, plan: FamilyPlan) -> None:
        """Switch to a plan; the job takes only the steps that the switch needs."""
        seen = len(self.client.events())
        pending = self.client.scale(plan.devices, plan=plan.name, wait=False)
        wait_until(lambda: _is_prepared(self.client.events(seen)))
        self.hold.unlink()
        self.switches.append(pending.result())
        self.hold.touch()
        self.look()


def _is_prepared(events: Sequence[Event]) -> bool:
    return any(event.kind in ("prepared", "refused") for event in events)


def drawn(family: Family, steps: int, count: int, seed: int) -> dict[int, str]:
    """Return ``count`` random switches: steps within the first three quarters, and their plans."""
    rng, found, last = np.random.default_rng(seed), {}, "1"
    names = [plan.name for plan in family.plans]
    for step in sorted(rng.choice(range(1, steps * 3 // 4), count, replace=False).tolist()):
        found[step] = last = str(rng.choice([name for name in names if name != last]))
    return found


def reads_differ(
    batches: Sequence[Sequence[int]],
    rows: Sequence[StepRow],
    read: Mapping[int, Sequence[Sequence[Read]]],
) -> str | None:
    """Return the error in the samples that ranks read, by generation and rank, or None.

    Every rank must read a run of the samples of each batch, in order, and together they read all.
    """
    firsts: dict[int, int] = {}
    for row in rows:
        start = firsts.setdefault(row.generation, row.step)
        batch = list(batches[row.step - 1])
        parts = [reads[row.step - start].ids for reads in read[row.generation]]
        for rank, part in enumerate(parts):
            if not _is_run(part, batch):
                return f"step {row.step}: rank {rank} read {part}, expected a run of {batch}"
        if {number for part in parts for number in part} != set(batch):
            return f"step {row.step}: ranks read {parts}, expected all of {batch}"
    return None


def _is_run(part: Sequence[int], batch: Sequence[int]) -> bool:
    places = range(len(batch) - len(part) + 1)
    return any(list(batch[at : at + len(part)]) == list(part) for at in places)
