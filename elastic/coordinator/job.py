"""The state of a job, shared by the parts of its coordinator and used on one thread."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tensoropt.elastic.control import JobStatus, RefusedError, State, StepRow
from tensoropt.elastic.coordinator.generations import Generation
from tensoropt.elastic.coordinator.persistence import (
    NoRoomError,
    SavedGeneration,
    SavedJob,
    unwritten,
)
from tensoropt.elastic.coordinator.settings import JobSettings
from tensoropt.elastic.coordinator.snapshots import SnapshotBook
from tensoropt.elastic.coordinator.switch import Switch
from tensoropt.elastic.coordinator.throughput import Throughput
from tensoropt.elastic.engines.engine import Engine, Outcome
from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.jobs import JobFolder
from tensoropt.elastic.rows import Rows
from tensoropt.runtime.family.family import Family, FamilyPlan
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.checkpoint import checkpoints_in

__all__ = ["Crashes", "Job"]


@dataclass
class Crashes:
    """The crashes since the last progress.

    Recovery repeats steps from before a crash, as snapshots and checkpoints are older; only a step
    after ``step``, the last one before any of the crashes, is progress. ``count`` is the number of
    crashes, ``tried`` the plans that failed twice in the same way. ``in_training`` are the errors
    that ranks reported themselves during training, with the step before.
    """

    step: int = 0
    count: int = 0
    last: tuple[int, str] | None = None
    tried: list[str] = field(default_factory=list)
    in_training: set[tuple[int, str]] = field(default_factory=set)


class Job:
    """The generations of a job, its figures, its files.

    ``current`` has the state and trains, ``next`` prepares to. ``next_stage`` is its progress:
    starting, mapping (the memory of ``current``), pausing (``current``), taking (its state). Calls
    for the job's thread go into ``calls``. ``ended`` is called there with a generation's number and
    outcome when its processes have ended.
    """

    def __init__(
        self,
        settings: JobSettings,
        family: Family,
        engine: Engine,
        folder: JobFolder,
        ended: Callable[[int, Outcome], None],
    ) -> None:
        log = settings.training.get("log")
        self.settings, self.family, self.engine, self.folder = settings, family, engine, folder
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.state: State = "starting"
        self.current: Generation | None = None
        self.next: Generation | None = None
        self.next_stage = "starting"
        self.switch: Switch | None = None
        self.generations: dict[int, Generation] = {}
        self.book = SnapshotBook(engine)
        self.throughput = Throughput(family.samples_per_step)
        self.stops: list[Future[None]] = []
        self.crashes = Crashes()
        self.source = ("the start", 0)
        self.step, self.loss = 0, None
        self.moved_at = time.monotonic()
        self.error: str | None = None
        self.ended_at: float | None = None
        self._unsaved: str | None = None
        self._trouble: str | None = None
        self.saved = self._read_saved()
        # It has each step before the folder does. A new coordinator cuts it back to the folder's.
        self._log = None if log is None else Rows(Path(log), "step", flush_s=0.0)
        self._on_end = ended
        self.status = self._make_status()

    def _read_saved(self) -> SavedJob:
        path = self.folder.path / "coordinator.json"
        found = SavedJob.read(path)
        if found is None or not found.generations:
            data = found.data if found is not None else None
            address = self.engine.address(None)
            return SavedJob(path, address, started_at=time.time(), data=data)
        found.address = self.engine.address(found.address)
        return found

    def post(self, call: Callable[[], None]) -> None:
        """Queue a call for the job's thread; from any thread."""
        self.calls.put(call)

    # Plans, devices, generations.

    def plan_for(self, devices: int, name: str | None) -> FamilyPlan:
        """Return the plan of that name, or the fastest one. Raises `RefusedError`."""
        try:
            plan = self.family.for_devices(devices) if name is None else self.family.plan(name)
        except UserError as error:
            raise RefusedError(str(error)) from None
        if plan.devices != devices:
            raise RefusedError(
                f"plan {plan.name}: expected one for {devices} devices, got: {plan.devices}"
            )
        return plan

    def first_plan(self) -> FamilyPlan:
        """Return the plan that the job begins with."""
        return self.plan_for(self.settings.devices, self.settings.plan)

    def choose_devices(self, count: int, to: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return devices for a generation: ``to`` if given, else free devices first.

        Raises `RefusedError`.
        """
        available = list(self.engine.devices())
        if to is not None:
            unknown = [name for name in to if name not in available]
            if unknown or len(to) != count:
                wanted = f"{count} of {', '.join(available)}"
                raise RefusedError(f"devices {', '.join(to)}: expected {wanted}")
            return tuple(to)
        if count > len(available):
            raise RefusedError(
                f"{count} devices: expected at most {len(available)}, the number available"
            )
        used = set(self.current.devices) if self.current and not self.current.is_over else set()
        return tuple(sorted(available, key=lambda name: name in used)[:count])

    def launch(self, plan: FamilyPlan, devices: Sequence[str]) -> None:
        """Start the next generation. Raises `UserError`; `NoRoomError` if the disk is full."""
        number = self.saved.count + 1
        job = self._generation_job(plan, number)
        try:
            host = self.engine.start(job, devices, self.folder.path, self.end_callback(number))
        except OSError as error:
            failure = unwritten(Path(error.filename or self.folder.path), error)
            if isinstance(failure, NoRoomError):
                self._unsaved = str(failure)
            raise failure from None
        generation = Generation(number, plan, tuple(devices), host)
        saved = SavedGeneration(host.facts(), plan.name, list(devices))
        self.saved.count, self.saved.generations[str(number)] = number, saved
        self.generations[number] = generation
        try:
            self.saved.write()
        except UserError as error:
            self._unsaved = str(error)
            generation.end()  # no coordinator would find its ranks
            raise
        self.next, self.next_stage = generation, "starting"
        host.begin()

    def take_charge(self, generation: Generation) -> None:
        """Put ``generation`` in charge, and record that for a later coordinator."""
        self.current, self.next = generation, None
        self.saved.current = generation.number
        self.save()

    def save(self) -> None:
        """Write the record for a later coordinator; on a full disk, `tick` retries."""
        try:
            self.saved.write()
        except UserError as error:
            self._unsaved = str(error)
        else:
            self._unsaved = None

    def disk_trouble(self) -> str | None:
        """Return a file that failed to be written last time, and why; None if there is none."""
        if self._log is not None and self._log.error is not None:
            return f"{self._log.path}: {cause_of(self._log.error)}"
        return self.folder.trouble() or self._unsaved

    def tick(self) -> None:
        """Retry pending writes, and report when the disk fails or recovers."""
        self.folder.flush()
        if self._unsaved is not None:
            self.save()
        if self._log is not None:
            self._log.flush()
        trouble = self.disk_trouble()
        if trouble is not None and self._trouble is None:
            self.event("disk", f"{trouble}; the job continues and retries the write")
        elif trouble is None and self._trouble is not None:
            self.event("disk", "all files can be written again")
        self._trouble = trouble

    def _generation_job(self, plan: FamilyPlan, number: int) -> GenerationJob:
        settings = self.settings
        values: dict[str, Any] = {"total_steps": settings.steps, **settings.training}
        return GenerationJob(
            **values,
            plan=str(plan.path),
            steps=settings.steps,
            data=settings.data,
            generation=number,
            address=self.saved.address,
            key=self.saved.key,
            grace_s=settings.grace_s,
            snapshot_every=settings.snapshot_every,
        )

    def end_callback(self, number: int) -> Callable[[Outcome], None]:
        """Return the callback for the end of a generation; engines call it from any thread."""
        return lambda outcome: self.post(partial(self._on_end, number, outcome))

    def giver(self) -> Generation | None:
        """Return the current generation, which has the state in memory, if it lives."""
        current = self.current
        return None if current is None or current.is_over else current

    def newest_file(self) -> tuple[Path, int]:
        """Return the newest state on disk, and the step after which it was written."""
        found = checkpoints_in(Path(self.settings.training["checkpoint"]))
        if found:
            return found[-1], int(found[-1].stem.removeprefix("step-"))
        resume = self.settings.training.get("resume")
        return Path(resume) if resume else self.family.initial, 0

    def set_aside_newest(self) -> Path | None:
        """Rename the newest checkpoint, which is damaged; return its new path.

        None if the job has written no checkpoint.
        """
        found = checkpoints_in(Path(self.settings.training["checkpoint"]))
        if not found:
            return None
        aside = found[-1].with_name(f"{found[-1].name}.damaged")
        return found[-1].replace(aside)

    def describe_devices(self, generation: Generation) -> str:
        """Return a generation's number of devices and plan, for messages."""
        count = generation.plan.devices
        return f"{count} device{'s' if count > 1 else ''} (plan {generation.plan.name})"

    # Steps and switches.

    def begin_log_at(self, step: int) -> None:
        """Remove the steps after ``step`` from the logs: they will be repeated."""
        self.step = step
        self.folder.truncate_steps(step)
        if self._log is not None:
            self._log.truncate(step)

    def add_step(self, generation: Generation, row: dict[str, Any]) -> None:
        """Record a step of the generation in charge."""
        self.step, self.loss, self.moved_at = row["step"], row["loss"], time.monotonic()
        if self.step > self.crashes.step:
            self.crashes = Crashes()
        made = StepRow(
            row["step"], row["loss"], row["time_s"], generation.plan.devices, generation.number
        )
        if self._log is not None:
            self._log.append(_log_row(row, made))
        self.folder.append_step(made)
        disturbed = self.next is not None
        self.throughput.add(generation.plan.name, row, is_disturbed=disturbed)
        switch = self.switch
        if switch is None:
            return
        if switch.step is None:
            switch.stopped_at = row["end_at"]
        elif switch.add_step(row):
            self.finish_switch()

    def finish_switch(self) -> None:
        """Report the result of the switch, after its first steps."""
        switch, self.switch = self.switch, None
        if switch is None:
            return
        result = switch.result()
        text = (
            f"from {result.from_devices} to {result.to_devices} devices after step {result.step}, "
            f"stall {result.stall_s * 1e3:.0f} ms"
        )
        self.event("switched", text, **result.facts(), carried_bytes=switch.carried_bytes)
        switch.future.set_result(result)

    def refuse_switch(self, why: str) -> None:
        """Refuse the pending switch, if there is one."""
        switch, self.switch = self.switch, None
        if switch is not None:
            self.event("refused", why)
            switch.future.set_exception(RefusedError(why, is_conflict=True))

    def finish(self, state: State, text: str) -> None:
        """End the job in a state of `OVER`, and complete the pending requests."""
        self.folder.flush()
        if state == "failed":
            self.error = text
        self._end_switch()
        self.ended_at = time.time()
        self.event(state, text)
        self.enter(state)
        for future in self.stops:
            future.set_result(None)

    def _end_switch(self) -> None:
        switch = self.switch
        if switch is not None and switch.step is not None:
            with suppress(IndexError):
                self.finish_switch()
                return
        self.refuse_switch("the job ended first")

    def end(self) -> None:
        """Write that no generation is left, and the rest of ``--log``. Raises `UserError`."""
        try:
            self.saved.end()
        finally:
            if self._log is not None:
                self._log.close()

    # Events and status.

    def event(self, kind: str, text: str, **facts: Any) -> None:
        """Record an event at the present step."""
        self.folder.append_event(self.step, kind, text, facts)

    def enter(self, state: State) -> None:
        """Enter another state and publish it."""
        self.state = state
        self.publish()

    def publish(self) -> JobStatus:
        """Update the status, in memory and in the job's folder."""
        self.status = self._make_status()
        self.folder.write_status(self.status)
        return self.status

    def _make_status(self) -> JobStatus:
        generation = self.current or self.next
        plan = generation.plan if generation is not None else None
        name = plan.name if plan is not None else ""
        status = JobStatus(
            name=self.settings.name,
            state=self.state,
            step=self.step,
            steps=self.settings.steps,
            devices=plan.devices if plan is not None else self.settings.devices,
            plan=name,
            generation=generation.number if generation is not None else 0,
            family=self.settings.family,
            loss=self.loss,
            step_time_s=self.throughput.step_time_s(name),
            samples_per_s=self.throughput.samples_per_s(name),
            snapshot_step=self.book.step,
            started_at=self.saved.started_at,
            ended_at=self.ended_at,
            error=self.error,
        )
        if self.switch is not None:
            status = replace(status, switching_to=self.switch.plan.name)
        return status if generation is None else replace(status, ranks=generation.statuses())


def _log_row(row: dict[str, Any], made: StepRow) -> dict[str, Any]:
    """Return a step's row for ``--log``: the fields of tensoropt-run's log, and the devices."""
    names = ("loss_scale", "skipped", "not_finite", "evaluation_loss")
    optional = {name: row.get(name) for name in names if row.get(name) not in (None, False)}
    return {**vars(made), "learning_rate": row["learning_rate"], **optional}
