"""A job that nobody trains: what a server is asked of it, and when, a test decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from tensoropt.elastic.control import (
    Event,
    JobStatus,
    ProfileRow,
    RankStatus,
    RefusedError,
    StepRow,
    SwitchResult,
)


class StandInJob:
    """A `JobControl` of 2 devices at step 5. A switch is over when `finish` is called, or at once
    where ``switches_at_once``. Each look at the status is followed by one of ``changes``."""

    def __init__(self, *, switches_at_once: bool = True) -> None:
        self.switches_at_once = switches_at_once
        self.asked: list[tuple[object, ...]] = []
        self.stopped: Future[None] = Future()
        self.failure: Exception | None = None
        self.printed = "rank 0: hello\n"
        ranks = tuple(RankStatus(rank, f"cpu:{rank}", 100 + rank, 0.08) for rank in range(2))
        self.changes: list[Callable[[], None]] = []
        self.now = JobStatus("stand-in", "training", 5, 1000, 2, "2", 1, "families/mlp", 0.25,
            0.1, 320.0, 4, None, 1.8e9, None, ranks)  # fmt: skip
        self.log = [StepRow(step, 1.0 / step, 0.1, 2, 1) for step in range(1, 6)]
        self.happened = [Event(1, 1.8e9, 0, "started", "2 devices, plan 2", {"devices": 2})]
        self._lock = threading.Lock()
        self._under_way: tuple[Future[SwitchResult], int, str] | None = None

    def status(self) -> JobStatus:
        if self.failure is not None:
            raise self.failure
        found = self.now
        if self.changes:
            self.changes.pop(0)()
        return found

    def events(self, after: int = 0) -> Sequence[Event]:
        return [event for event in self.happened if event.number > after]

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        return [row for row in self.log if row.step > after][-limit:]

    def output(self) -> str:
        return self.printed

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        return [self._profile_row(count) for count in devices or (1, 2, 4)]

    def _profile_row(self, devices: int) -> ProfileRow:
        if devices not in (1, 2, 4):
            return ProfileRow(devices, None, why_not="no plan in the family")
        measured = 320.0 if devices == 2 else None
        return ProfileRow(devices, str(devices), 170.0 * devices, measured, 5, 64 << 20)

    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live"
    ) -> Future[SwitchResult]:
        self.asked.append(("scale", devices, plan, method))
        if devices > 64:
            raise RefusedError(f"family families/mlp: no plan for {devices} devices")
        return self._switch(devices, method)

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live"
    ) -> Future[SwitchResult]:
        self.asked.append(("migrate", to, method))
        return self._switch(self.now.devices, method)

    def stop(self) -> Future[None]:
        self.asked.append(("stop",))
        return self.stopped

    def happen(self, kind: str, text: str) -> None:
        event = Event(len(self.happened) + 1, time.time(), self.now.step, kind, text)
        self.happened.append(event)

    def take_step(self) -> None:
        step = self.log[-1].step + 1
        self.log.append(StepRow(step, 1.0 / step, 0.1, self.now.devices, self.now.generation))
        self.now = replace(self.now, step=step, loss=1.0 / step)

    def end(self, state: str = "ended") -> None:
        self.now = replace(self.now, state=state, ended_at=time.time())  # type: ignore[arg-type]
        self.happen(state, state)

    def _switch(self, devices: int, method: str) -> Future[SwitchResult]:
        with self._lock:
            if self._under_way is not None:
                raise RefusedError("a switch is under way", is_conflict=True)
            future: Future[SwitchResult] = Future()
            future.set_running_or_notify_cancel()
            self._under_way = (future, devices, method)
        if self.switches_at_once:
            self.finish()
        return future

    def finish(self, failure: Exception | None = None) -> None:
        """End the switch that is under way."""
        assert self._under_way is not None
        (future, devices, method), self._under_way = self._under_way, None
        if failure is not None:
            future.set_exception(failure)
            return
        before = self.now.devices
        self.now = replace(self.now, devices=devices, plan=str(devices))
        phases = {"publish": 0.03, "take": 0.05}
        future.set_result(
            SwitchResult(before, devices, 5, method, 6.0, 0.094, 1 << 20, "memory", phases)
        )
