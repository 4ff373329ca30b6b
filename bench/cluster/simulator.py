"""Discrete-event simulation of the cluster: arrivals, runs, changes of devices, and ends of jobs.

An event is the arrival or the end of a job, or a time that the policy requested. After all events
of a time, the policy allocates devices; jobs with unchanged allocations are not touched. A run
takes O(events x (policy + running jobs)), with about three events per job and level of service.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.costs import Costs
from cluster.jobs import Job, State
from cluster.placement import Machines

__all__ = ["Outcome", "Policy", "simulate"]

_END, _TIMER, _LEVEL = 0, 1, 2


class Policy(Protocol):
    """Allocator of devices to jobs. An object serves one run."""

    elastic: bool

    def arrived(self, state: State, now: float) -> None:
        """Handle the arrival of a job."""

    def ended(self, state: State, now: float) -> None:
        """Handle the end of a job."""

    def stopped(self, state: State, now: float) -> float | None:
        """Handle a job that lost all devices; return when to call `looked` if it still waits."""

    def looked(self, state: State, now: float) -> None:
        """Handle a requested time, returned by `stopped` or `due`."""

    def due(self, state: State, now: float) -> float | None:
        """Return when the attained service of this running job must be checked next."""

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        """Return the jobs to run, each with its number of devices."""
        ...


@dataclass(frozen=True)
class Outcome:
    """Final states of the jobs, in the order of their arrival, and use of ``devices`` devices."""

    states: Sequence[State]
    devices: int
    busy: float
    """Device seconds that were allocated to jobs."""

    @property
    def makespan_s(self) -> float:
        """Time from the first arrival to the last end."""
        return max(s.finished for s in self.states) - min(s.job.arrival_s for s in self.states)


def simulate(jobs: Sequence[Job], machines: Machines, policy: Policy, costs: Costs) -> Outcome:
    """Run jobs to their ends; raise RuntimeError if some jobs are never run."""
    return _Run(jobs, machines, policy, costs).outcome()


class _Run:
    def __init__(
        self, jobs: Sequence[Job], machines: Machines, policy: Policy, costs: Costs
    ) -> None:
        self.states = [State(job, job.work) for job in jobs]
        self.machines, self.policy, self.costs = machines, policy, costs
        self.live = costs.switch_s if policy.elastic else costs.resume_s
        self.events: list[tuple[float, int, int, int]] = []
        self.running: dict[State, int] = {}
        self.by_index = {state.job.index: state for state in self.states}
        self.busy = 0.0

    def outcome(self) -> Outcome:
        coming = sorted(self.states, key=lambda s: (s.job.arrival_s, s.job.index), reverse=True)
        while coming or self.events:
            now = min(
                coming[-1].job.arrival_s if coming else float("inf"),
                self.events[0][0] if self.events else float("inf"),
            )
            if self._happened(now, coming):
                self._allocate(now)
        left = [state.job.index for state in self.states if state.finished == float("inf")]
        if left:
            raise RuntimeError(f"the policy leaves {len(left)} jobs waiting, {left[0]} first")
        return Outcome(self.states, self.machines.devices, self.busy)

    def _happened(self, now: float, coming: list[State]) -> bool:
        """Process the events at ``now``; return whether there were any."""
        anything = False
        while self.events and self.events[0][0] <= now:
            _, kind, index, version = heapq.heappop(self.events)
            state = self.by_index[index]
            if state.version == version:
                anything = True
                self._handle(state, kind, now)
        while coming and coming[-1].job.arrival_s <= now:
            anything = True
            state = coming.pop()
            state.since = now
            self.policy.arrived(state, now)
        return anything

    def _handle(self, state: State, kind: int, now: float) -> None:
        self._settle(state, now)
        if kind == _END:
            self._end(state, now)
        else:
            self.policy.looked(state, now)
            if kind == _LEVEL:
                self._expect(state, self.policy.due(state, now), _LEVEL)

    def _end(self, state: State, now: float) -> None:
        self.machines.release(state.job.index)
        del self.running[state]
        state.remaining, state.finished, state.devices = 0.0, now, 0
        state.version += 1
        self.policy.ended(state, now)

    def _allocate(self, now: float) -> None:
        wanted = self.policy.allocate(self.machines.devices, now)
        running = self.running
        stopped = [state for state in running if state not in wanted]
        changed = [(s, count) for s, count in wanted.items() if running.get(s) != count]
        for state in (*stopped, *(s for s, _ in changed if s.devices)):
            self.machines.release(state.job.index)
        placed = [(state.job.index, count) for state, count in changed]
        moved = self.machines.place(placed) if placed else set()
        for state in stopped:
            self._stop(state, now)
        for state, count in changed:
            self._give(state, count, now)
        for state in (self.by_index[index] for index in sorted(moved)):
            self._give(state, state.devices, now)

    def _stop(self, state: State, now: float) -> None:
        self._settle(state, now)
        del self.running[state]
        state.devices = 0
        state.version += 1
        self._expect(state, self.policy.stopped(state, now), _TIMER)

    def _give(self, state: State, count: int, now: float) -> None:
        """Assign devices to a job, and schedule its end there."""
        self._settle(state, now)
        state.ready = now + self._stall(state, now)
        state.devices = self.running[state] = count
        state.version += 1
        end = state.ready + state.remaining / state.speed
        heapq.heappush(self.events, (end, _END, state.job.index, state.version))
        self._expect(state, self.policy.due(state, now), _LEVEL)

    def _stall(self, state: State, now: float) -> float:
        """Return and record the stall of a job by a change of its devices."""
        state.switched = now
        if state.started == float("inf"):
            state.started = now
            return 0.0
        if state.devices:
            state.switches += 1
            return self.live
        state.resumes += 1
        return self.costs.resume_s

    def _expect(self, state: State, at: float | None, kind: int) -> None:
        if at is not None:
            heapq.heappush(self.events, (at, kind, state.job.index, state.version))

    def _settle(self, state: State, now: float) -> None:
        """Account for a job's progress since the last event."""
        held = (now - state.since) * state.devices
        worked = now - min(max(state.since, state.ready), now)
        state.remaining -= worked * state.speed
        state.attained += worked * state.devices
        state.stalled += held - worked * state.devices
        state.since = now
        self.busy += held
