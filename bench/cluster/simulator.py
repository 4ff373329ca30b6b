"""The cluster over time: jobs arrive, run, change their devices and end; nothing happens between.

An event is the arrival or the end of a job, or a moment that the policy asked for. After all events
of a moment the policy says who has how many devices, and who keeps what it had is not touched. So a
run takes O(events x (policy + jobs that run)); events are about three per job and level of service.
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
    """Who gets how many devices. One object is used for one run."""

    elastic: bool

    def arrived(self, state: State, now: float) -> None:
        """A job came."""

    def ended(self, state: State, now: float) -> None:
        """A job is done."""

    def stopped(self, state: State, now: float) -> float | None:
        """All devices were taken from a job; returns when to look again if it still waits."""

    def looked(self, state: State, now: float) -> None:
        """A moment that was asked for has come: that of `stopped`, or of `due`."""

    def due(self, state: State, now: float) -> float | None:
        """Return when what this running job has attained is to be looked at again."""

    def allocate(self, devices: int, now: float) -> Mapping[State, int]:
        """Return the jobs that are to run, each with its devices."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What became of the jobs, in the order of their arrival, and of ``devices`` devices."""

    states: Sequence[State]
    devices: int
    busy: float
    """Device seconds that jobs held."""

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last end."""
        return max(s.finished for s in self.states) - min(s.job.arrival_s for s in self.states)


def simulate(jobs: Sequence[Job], machines: Machines, policy: Policy, costs: Costs) -> Outcome:
    """Run jobs to their ends; raises RuntimeError when some are left that nothing will run."""
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
        """Take what happens now off the queues; return whether anything did."""
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
        """Put a job on its devices, and say when it ends there."""
        self._settle(state, now)
        state.ready = now + self._stall(state, now)
        state.devices = self.running[state] = count
        state.version += 1
        end = state.ready + state.remaining / state.speed
        heapq.heappush(self.events, (end, _END, state.job.index, state.version))
        self._expect(state, self.policy.due(state, now), _LEVEL)

    def _stall(self, state: State, now: float) -> float:
        """Return for how long a job stands still because its devices change, and count it."""
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
        """Count what a job did since it was last looked at."""
        held = (now - state.since) * state.devices
        worked = now - min(max(state.since, state.ready), now)
        state.remaining -= worked * state.speed
        state.attained += worked * state.devices
        state.stalled += held - worked * state.devices
        state.since = now
        self.busy += held
