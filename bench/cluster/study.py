"""Runs of the study: policies, loads and costs of a switch, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.costs import Costs
from cluster.jobs import Job, jobs_of
from cluster.placement import Machines
from cluster.policies.elastic_tiresias import ElasticTiresias
from cluster.policies.fifo import Fifo
from cluster.policies.known import Known
from cluster.policies.marginal import LEVELS, Marginal
from cluster.policies.tiresias import Tiresias
from cluster.profiles import Profile
from cluster.simulator import Outcome, Policy, simulate
from cluster.trace import Submission

__all__ = ["BASE", "OURS", "POLICIES", "Figures", "Study", "figures"]


@dataclass(frozen=True)
class Entry:
    """A policy in the study.

    With ``lean``, jobs have plans for little memory. Entries ``aside`` show the source of a gain,
    and run with the first costs alone.
    """

    make: Callable[[], Policy]
    elastic: bool
    lean: bool
    aside: bool = False


BASE, OURS = "Tiresias", "marginal"
POLICIES: Mapping[str, Entry] = {
    "FIFO": Entry(Fifo, False, False, aside=True),
    BASE: Entry(Tiresias, False, False),
    "Elastic-Tiresias": Entry(ElasticTiresias, True, False),
    OURS: Entry(Marginal, True, True),
    "Tiresias, more queues": Entry(lambda: Tiresias(LEVELS), False, False, aside=True),
    "Elastic-Tiresias, lean": Entry(ElasticTiresias, True, True, aside=True),
    "marginal, replicas": Entry(Marginal, True, False, aside=True),
    "marginal, times known": Entry(Known, True, True, aside=True),
}


@dataclass(frozen=True)
class Figures:
    """Figures of a run; times in seconds, of a job from its arrival to its end."""

    policy: str
    load: float
    costs: str
    average_s: float
    median_s: float
    p95_s: float
    p99_s: float
    makespan_s: float
    utilisation: float
    switches: float
    resumes: float
    stalled: float
    times_s: np.ndarray


def figures(policy: str, load: float, costs: str, outcome: Outcome) -> Figures:
    """Return the figures of an outcome.

    Utilisation is the allocated part of all device seconds; ``stalled`` is the part of the
    allocated ones that were stalled. Switches (with some devices before and after) and resumes are
    per job.
    """
    states = outcome.states
    times = np.array([state.finished - state.job.arrival_s for state in states])
    median, p95, p99 = (float(part) for part in np.percentile(times, (50, 95, 99)))
    return Figures(
        policy,
        load,
        costs,
        float(times.mean()),
        median,
        p95,
        p99,
        outcome.makespan_s,
        outcome.busy / (outcome.devices * outcome.makespan_s),
        sum(state.switches for state in states) / len(states),
        sum(state.resumes for state in states) / len(states),
        sum(state.stalled for state in states) / outcome.busy,
        times,
    )


@dataclass(frozen=True)
class Study:
    """A trace on a cluster of ``machines`` of ``size`` devices; deterministic for a seed."""

    trace: Sequence[Submission]
    profiles: Sequence[Profile]
    machines: int
    size: int
    seed: int
    grow: int | None = None

    @property
    def devices(self) -> int:
        return self.machines * self.size

    def run(self, policy: str, load: float, costs: Costs) -> Figures:
        """Run one policy at one load."""
        entry = POLICIES[policy]
        machines = Machines(self.machines, self.size)
        jobs = self.jobs(load, lean=entry.lean)
        outcome = simulate(jobs, machines, entry.make(), costs)
        return figures(policy, load, costs.name, outcome)

    def jobs(self, load: float, *, lean: bool = True) -> Sequence[Job]:
        """Return the jobs at a load."""
        return jobs_of(
            self.trace,
            self.profiles,
            self.devices,
            load,
            self.seed,
            lean=lean,
            grow=self.grow,
        )

    def runs(
        self, policies: Sequence[str], loads: Sequence[float], costs: Sequence[Costs]
    ) -> Iterator[Figures]:
        """Yield the figures of all combinations; policies aside only run with the first costs."""
        for load in loads:
            for name in policies:
                for cost in costs[:1] if POLICIES[name].aside else costs:
                    yield self.run(name, load, cost)
