"""The coordinator of one job: it handles messages of ranks, ends of processes and requests."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from tensoropt.elastic.control import (
    OVER,
    Event,
    JobStatus,
    ProfileRow,
    RefusedError,
    StepRow,
    SwitchResult,
)
from tensoropt.elastic.coordinator.generations import Generation, Rank
from tensoropt.elastic.coordinator.handover import HandOver
from tensoropt.elastic.coordinator.job import Job
from tensoropt.elastic.coordinator.listener import Listener
from tensoropt.elastic.coordinator.recovery import Recovery
from tensoropt.elastic.coordinator.requests import begin_switch
from tensoropt.elastic.coordinator.settings import JobSettings
from tensoropt.elastic.coordinator.snapshots import Snapshot
from tensoropt.elastic.coordinator.stragglers import Stragglers
from tensoropt.elastic.engines.engine import Engine, Outcome
from tensoropt.elastic.generation.messages import STOP
from tensoropt.elastic.generation.parts import Parts
from tensoropt.elastic.jobs import JobFolder
from tensoropt.runtime.family.family import Family
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.training.data.source import Facts

__all__ = ["Coordinator"]

_TICK_S = 0.5
_ADOPT_S = 20.0  # within which ranks of a dead coordinator must connect
_END_S = 30.0  # within which processes must end


class Coordinator:
    """Runs a job to its end, in `run`; the methods of `JobControl` are thread-safe."""

    def __init__(
        self, settings: JobSettings, family: Family, engine: Engine, folder: JobFolder
    ) -> None:
        self._job = Job(settings, family, engine, folder, self._on_end)
        self._stragglers = Stragglers()
        self._handover = HandOver(self._job, self._stragglers)
        self._recovery = Recovery(self._job, self._handover)
        self._ranks: dict[int, tuple[int, int]] = {}  # generation and rank, by connection
        self._ticked_at = time.monotonic()

    # `JobControl`, from any thread.

    def status(self) -> JobStatus:
        return self._job.status

    def events(self, after: int = 0) -> Sequence[Event]:
        return self._job.folder.events(after)

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        return self._job.folder.steps(after, limit)

    def output(self) -> str:
        return self._job.folder.output()

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        family = self._job.family
        counts = sorted({*family.counts, *family.why_not, *(devices or ())})
        return [self._profile_row(n) for n in counts if devices is None or n in devices]

    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live"
    ) -> Future[SwitchResult]:
        future: Future[SwitchResult] = Future()
        self._job.post(partial(begin_switch, self._job, devices, plan, None, method, future))
        return future

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live"
    ) -> Future[SwitchResult]:
        future: Future[SwitchResult] = Future()
        self._job.post(partial(begin_switch, self._job, None, None, to, method, future))
        return future

    def stop(self) -> Future[None]:
        future: Future[None] = Future()
        self._job.post(partial(self._stop, future))
        return future

    def _profile_row(self, devices: int) -> ProfileRow:
        try:
            plan = self._job.family.for_devices(devices)
        except UserError as error:
            return ProfileRow(devices, None, why_not=str(error))
        return ProfileRow(
            devices,
            plan.name,
            plan.samples_per_s,
            self._job.throughput.samples_per_s(plan.name),
            self._job.throughput.steps(plan.name),
            plan.process_bytes,
        )

    # The job's thread.

    def run(self, show: Callable[[JobStatus], None] = lambda _: None) -> JobStatus:
        """Run the job until it ends, is stopped or fails; return its last status.

        ``show`` is called twice a second. Raises `UserError` if the job cannot be started, or if
        its folder was removed.
        """
        try:
            return self._run(show)
        except (OSError, UserError):
            self._job.folder.check_there()
            raise

    def _run(self, show: Callable[[JobStatus], None]) -> JobStatus:
        job = self._job
        listener = Listener(job.saved.address, bytes.fromhex(job.saved.key), self._post_message)
        job.saved.address = listener.address
        try:
            job.step = max((row.step for row in job.folder.steps(0, 1)), default=0)
            if job.saved.generations:
                job.begin_log_at(job.step)  # ranks report the later steps again
                self._recovery.adopt()
            else:
                plan = job.first_plan()
                job.event("started", f"{job.settings.steps} steps of {job.family.model_name}")
                job.launch(plan, job.choose_devices(plan.devices))
            while job.state not in OVER:
                left_s = self._ticked_at + _TICK_S - time.monotonic()
                if left_s > 0:
                    with suppress(queue.Empty):
                        job.calls.get(timeout=left_s)()
                    continue
                job.folder.check_there()
                self._ticked_at = time.monotonic()
                self._tick()
                show(job.publish())
        except RefusedError as refused:
            raise UserError(str(refused)) from None
        finally:
            listener.close()
            self._end_all()
            job.engine.close()
            job.end()
        return job.publish()

    def _post_message(self, connection: Connection, message: Message | None) -> None:
        """Queue a rank's message; runs on the thread of its connection."""
        self._job.post(partial(self._on_message, connection, message))

    def _on_message(self, connection: Connection, message: Message | None) -> None:
        key = id(connection)
        if message is None:
            self._ranks.pop(key, None)
            return
        if message["kind"] == "hello":
            self._on_hello(connection, message)
            return
        if key not in self._ranks:
            return
        number, rank = self._ranks[key]
        generation = self._job.generations[number]
        if message["kind"] == "phase":
            self._on_phase(generation, generation.ranks[rank], message)
        elif message["kind"] == "steps":
            self._on_steps(generation, generation.ranks[rank], message["steps"])
        elif message["kind"] == "snapshot":
            self._on_snapshot(generation, rank, message["slot"], message["progress"])
        elif message["kind"] == "checkpoint" and rank == 0:
            self._job.event("checkpoint", f"after step {message['step']}")
        elif message["kind"] == "no-checkpoint" and rank == 0:
            self._job.event("no-checkpoint", f"after step {message['step']}: {message['why']}")

    def _on_hello(self, connection: Connection, hello: Message) -> None:
        generation = self._job.generations.get(hello["generation"])
        if generation is None or generation.is_over:
            with suppress(OSError):
                connection.close()
            return
        try:
            rank = Rank.from_hello(hello, connection, self._job.engine)
        except OSError:
            with suppress(OSError):  # a rank that lives reconnects; the end of a dead one follows
                connection.close()
            return
        if rank.number in generation.ranks:
            generation.ranks[rank.number].drop_snapshots()
        generation.ranks[rank.number] = rank
        self._ranks[id(connection)] = generation.number, rank.number
        if hello["snapshot"] is not None:
            self._on_snapshot(generation, rank.number, **hello["snapshot"])
        self._on_steps(generation, rank, hello["steps"])
        if rank.number == 0:
            self._job.folder.flush()  # from now on the rank keeps only its last steps
            generation.progress = hello["progress"]
            if self._has_other_data(generation, hello["data"]):
                return
        self._handover.advance(generation)

    def _has_other_data(self, generation: Generation, values: dict[str, Any]) -> bool:
        """Reject a generation if its data differ from the data that the job began with."""
        saved, facts = self._job.saved, Facts.from_values(values)
        if saved.data is None:
            saved.data = facts.values()
        try:
            facts.check(self._job.settings.data, Facts.from_values(saved.data))
        except UserError as error:
            self._recovery.handle_next_failure(str(error))
            return True
        return False

    def _on_snapshot(
        self, generation: Generation, rank: int, slot: int, progress: dict[str, Any]
    ) -> None:
        snapshot = self._job.book.add(generation, rank, slot, progress)
        if snapshot is None:
            return
        spread = self._job.engine.spread(snapshot.parts)
        if spread.done():
            self._keep(snapshot, spread.result())
        else:
            spread.add_done_callback(
                lambda done: self._job.post(partial(self._keep, snapshot, done.result()))
            )

    def _keep(self, snapshot: Snapshot, parts: Parts | None) -> None:
        is_kept = self._job.book.keep(snapshot, parts)
        if not snapshot.generation.is_over:
            settled = {"kind": "settled", "step": snapshot.parts.step, "is_kept": is_kept}
            snapshot.generation.send_all(settled)

    def _on_phase(self, generation: Generation, rank: Rank, message: Message) -> None:
        rank.phase = message["phase"]
        rank.moved_by = message.get("moved_by", rank.moved_by)
        if rank.phase == "mapped":
            rank.why_not_device = message.get("why")
        if rank.phase == "damaged":
            rank.damage = message["why"]
        if rank.phase == "taken":
            rank.moved_bytes = message["moved_bytes"]
        if rank.phase == "paused" and rank.number == 0:
            generation.progress = message["progress"]
        self._handover.advance(generation)

    def _on_steps(self, generation: Generation, rank: Rank, rows: Sequence[dict[str, Any]]) -> None:
        rank.own_times_s.extend(row["own_s"] for row in rows if row["own_s"] is not None)
        if rank.number != 0 or generation is not self._job.current:
            return
        for row in rows:
            if row["step"] > self._job.step:
                row["end_at"] += rank.ahead_s
                self._job.add_step(generation, row)

    def _stop(self, future: Future[None]) -> None:
        self._job.stops.append(future)
        if self._job.current is not None and not self._job.current.is_over:
            self._job.current.ask(STOP)
        elif self._job.next is None or self._job.next_stage == "starting":
            self._job.finish("stopped", "before training")

    def _on_end(self, number: int, outcome: Outcome) -> None:
        generation = self._job.generations[number]
        generation.is_over = True
        generation.close()
        generation.drop_carrier()
        self._job.saved.generations.pop(str(number), None)
        result = outcome.get("result")
        if generation is self._job.next:
            self._recovery.handle_next_failure(outcome.get("error") or "it ended without an error")
        elif generation is self._job.current and self._job.state not in OVER:
            if result is None:
                self._recovery.handle_loss(generation, str(outcome["error"]))
            else:
                self._current_ended(generation, result)
        self._job.book.forget_unless_newest(generation)

    def _current_ended(self, generation: Generation, result: dict[str, Any]) -> None:
        switch = self._job.switch
        if result["error"] is not None:
            self._job.finish("failed", result["error"])
        elif result["step"] >= self._job.settings.steps:
            self._job.finish("ended", f"after step {result['step']}")
        elif switch is not None and switch.method == "stop-resume":
            switch.stood_at = time.monotonic()
            self._job.launch(switch.plan, switch.devices)
        elif self._job.stops:
            self._job.finish("stopped", f"after step {result['step']}")
        else:
            self._recovery.handle_loss(generation, "its ranks ended without a coordinator")

    def _end_all(self) -> None:
        living = [g for g in self._job.generations.values() if not g.is_over]
        for generation in living:
            generation.end()
        deadline = time.monotonic() + _END_S
        while any(not g.is_over for g in living) and time.monotonic() < deadline:
            with suppress(queue.Empty):
                self._job.calls.get(timeout=0.1)()

    def _tick(self) -> None:
        current, stall_s = self._job.current, self._job.settings.stall_s
        self._job.tick()
        self._recovery.retry()
        if current is None or current.is_over or self._job.state not in ("training", "preparing"):
            return
        waited_s = time.monotonic() - self._job.moved_at
        if len(current.ranks) < current.plan.devices and waited_s > _ADOPT_S:
            self._end(current, "its ranks did not reconnect to the coordinator")
        elif stall_s is not None and waited_s > stall_s:
            self._end(current, f"no step within --stall {stall_s:g} s")
        elif self._job.state == "training":
            self._look_for_stragglers(current)

    def _end(self, current: Generation, why: str) -> None:
        """End a generation that makes no progress; recovery then proceeds as after a crash."""
        self._job.event("lost", f"generation {current.number} is ended: {why}")
        self._job.moved_at = time.monotonic()
        current.end()

    def _look_for_stragglers(self, current: Generation) -> None:
        found = self._stragglers.look(current.statuses())
        if found is None:
            return
        self._job.event("straggler", found.text, **found.facts)
        if self._job.settings.replace_stragglers:
            self.migrate()
