"""The coordinator of one job: generations, switches between them, recovery from crashes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tensoropt.elastic.control import (
    METHODS,
    Event,
    JobStatus,
    ProfileRow,
    RefusedError,
    State,
    StepRow,
    SwitchResult,
)
from tensoropt.elastic.coordinator.generations import Generation, Rank
from tensoropt.elastic.coordinator.listener import Listener
from tensoropt.elastic.coordinator.saved import Saved, SavedGeneration
from tensoropt.elastic.coordinator.settings import JobSettings
from tensoropt.elastic.coordinator.snapshots import SnapshotBook
from tensoropt.elastic.coordinator.stragglers import Stragglers
from tensoropt.elastic.coordinator.switch import Switch
from tensoropt.elastic.coordinator.throughput import Throughput
from tensoropt.elastic.engines.engine import Engine, Outcome
from tensoropt.elastic.family.family import Family, FamilyPlan
from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.generation.messages import PAUSE, STOP, Message
from tensoropt.elastic.jobs import JobFolder
from tensoropt.elastic.rows import Rows
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.checkpoint import checkpoints_in

__all__ = ["Coordinator"]

_TICK_S = 0.5
_ATTEMPTS = 10  # to go on after crashes, without a step between them
_ADOPT_S = 20.0  # for the ranks of a coordinator that died to find this one
_OVER: tuple[State, ...] = ("ended", "stopped", "failed")


class Coordinator:
    """Runs a job to its end, in `run`; everything else may be called from any thread."""

    def __init__(
        self, settings: JobSettings, family: Family, engine: Engine, folder: JobFolder
    ) -> None:
        log = settings.training.get("log")
        self._log = None if log is None else Rows(Path(log), "step")
        self._settings, self._family, self._engine, self._folder = settings, family, engine, folder
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self._state: State = "starting"
        self._current: Generation | None = None
        self._next: Generation | None = None
        self._next_stage = "starting"
        self._switch: Switch | None = None
        self._generations: dict[int, Generation] = {}
        self._of: dict[int, tuple[int, int]] = {}
        self._book = SnapshotBook(engine)
        self._throughput = Throughput(family.samples_per_step)
        self._stragglers = Stragglers()
        self._stops: list[Future[None]] = []
        self._failure: tuple[int, str] | None = None
        self._tried: list[str] = []
        self._attempts = 0
        self._source = ("the start", 0)
        self._step, self._loss = 0, None
        self._moved_at = self._tick_at = time.monotonic()
        self._error: str | None = None
        self._ended_at: float | None = None
        self._saved = self._read_saved()
        self._status = self._made_status()

    def _read_saved(self) -> Saved:
        path = self._folder.path / "coordinator.json"
        found = Saved.read(path)
        if found is None:
            return Saved(path, self._engine.address(None), started_at=time.time())
        found.address = self._engine.address(found.address)
        return found

    # What others ask, from any thread.

    def status(self) -> JobStatus:
        return self._status

    def events(self, after: int = 0) -> Sequence[Event]:
        return self._folder.events(after)

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        return self._folder.steps(after, limit)

    def output(self) -> str:
        return self._folder.output()

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        counts = sorted({*self._family.counts, *self._family.why_not, *(devices or ())})
        return [self._profile_row(n) for n in counts if devices is None or n in devices]

    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live"
    ) -> Future[SwitchResult]:
        future: Future[SwitchResult] = Future()
        self._post(partial(self._begin_switch, devices, plan, None, method, future))
        return future

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live"
    ) -> Future[SwitchResult]:
        future: Future[SwitchResult] = Future()
        self._post(partial(self._begin_switch, None, None, to, method, future))
        return future

    def stop(self) -> Future[None]:
        future: Future[None] = Future()
        self._post(partial(self._stop, future))
        return future

    def _profile_row(self, devices: int) -> ProfileRow:
        try:
            plan = self._family.for_devices(devices)
        except UserError as error:
            return ProfileRow(devices, None, why_not=str(error))
        return ProfileRow(
            devices,
            plan.name,
            plan.samples_per_s,
            self._throughput.samples_per_s(plan.name),
            self._throughput.steps(plan.name),
            plan.memory_bytes,
        )

    # The one thread that everything is done in.

    def run(self, show: Callable[[JobStatus], None] = lambda _: None) -> JobStatus:
        """Run the job until it has ended, was stopped or has failed; returns how it stands then.

        ``show`` is called twice a second. Raises `UserError` where it cannot be started.
        """
        key = bytes.fromhex(self._saved.key)
        listener = Listener(self._saved.address, key, self._heard)
        self._saved.address = listener.address
        try:
            self._post(self._start)
            while self._state not in _OVER:
                self._do_next(show)
        finally:
            listener.close()
            self._end_all()
            self._engine.close()
        self._saved.path.unlink(missing_ok=True)
        return self._publish()

    def _do_next(self, show: Callable[[JobStatus], None]) -> None:
        """Make the next call; twice a second, also while calls never cease, look after the rest."""
        left_s = self._tick_at - time.monotonic()
        with suppress(queue.Empty):
            self._calls.get(timeout=max(left_s, 0.0))()
        if left_s <= 0:
            self._tick_at = time.monotonic() + _TICK_S
            self._tick()
            show(self._publish())

    def _post(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def _heard(self, connection: Connection, message: Message | None) -> None:
        """Hear what a rank says, on the thread of its connection."""
        self._post(partial(self._on_message, connection, message))

    def _start(self) -> None:
        self._step = max((row.step for row in self._folder.steps(0, 1)), default=0)
        if self._saved.generations:
            self._adopt()
            return
        plan = self._first_plan()
        self._event("started", f"{self._settings.steps} steps of {self._family.model_name}")
        self._launch(plan, self._choose_devices(plan.devices))

    # Generations.

    def _launch(self, plan: FamilyPlan, devices: Sequence[str]) -> None:
        """Start the next generation."""
        number = self._saved.count + 1
        host = self._engine.start(
            self._job(plan, number), devices, self._folder.path, partial(self._ended, number)
        )
        generation = Generation(number, plan, tuple(devices), host)
        self._generations[number] = self._next = generation
        self._next_stage = "starting"
        saved = SavedGeneration(host.facts(), plan.name, list(devices))
        self._saved.count, self._saved.generations[str(number)] = number, saved
        self._saved.write()
        host.begin()

    def _job(self, plan: FamilyPlan, number: int) -> GenerationJob:
        settings = self._settings
        values: dict[str, Any] = {"total_steps": settings.steps, **settings.training}
        return GenerationJob(
            **values,
            plan=str(plan.path),
            steps=settings.steps,
            data=settings.data,
            generation=number,
            address=self._saved.address,
            key=self._saved.key,
            grace_s=settings.grace_s,
            snapshot_every=settings.snapshot_every,
            initial=str(self._family.initial),
        )

    def _ended(self, number: int, outcome: Outcome) -> None:
        """Hear that the processes of a generation are gone, on a thread of the engine."""
        self._post(partial(self._on_end, number, outcome))

    def _choose_devices(self, count: int, to: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return devices for a generation: those named, else free ones first."""
        there = list(self._engine.devices())
        if to is not None:
            unknown = [name for name in to if name not in there]
            if unknown or len(to) != count:
                wanted = f"{count} of {', '.join(there)}"
                raise RefusedError(f"devices {', '.join(to)}: expected {wanted}")
            return tuple(to)
        if count > len(there):
            raise RefusedError(f"{count} devices: expected at most {len(there)}, as many there are")
        used = set(self._current.devices) if self._current and not self._current.is_over else set()
        return tuple(sorted(there, key=lambda name: name in used)[:count])

    def _plan_for(self, devices: int, name: str | None) -> FamilyPlan:
        try:
            plan = self._family.for_devices(devices) if name is None else self._family.plan(name)
        except UserError as error:
            raise RefusedError(str(error)) from None
        if plan.devices != devices:
            raise RefusedError(
                f"plan {plan.name}: expected one for {devices} devices, got: {plan.devices}"
            )
        return plan

    # What ranks say.

    def _on_message(self, connection: Connection, message: Message | None) -> None:
        key = id(connection)
        if message is None:
            self._of.pop(key, None)
            return
        if message["kind"] == "hello":
            self._on_hello(connection, message)
            return
        if key not in self._of:
            return
        number, rank = self._of[key]
        generation = self._generations[number]
        if message["kind"] == "phase":
            self._on_phase(generation, generation.ranks[rank], message)
        elif message["kind"] == "steps":
            self._on_steps(generation, generation.ranks[rank], message["steps"])
        elif message["kind"] == "snapshot":
            self._on_snapshot(generation, rank, message["slot"], message["progress"])
        elif message["kind"] == "checkpoint" and rank == 0:
            self._event("checkpoint", f"after step {message['step']}")

    def _on_hello(self, connection: Connection, hello: Message) -> None:
        generation = self._generations.get(hello["generation"])
        if generation is None or generation.is_over:
            connection.close()
            return
        try:
            rank = Rank.of(hello, connection, self._engine)
        except OSError:
            return  # it has gone: its end is on its way
        if rank.number in generation.ranks:
            generation.ranks[rank.number].drop_snapshots()
        generation.ranks[rank.number] = rank
        self._of[id(connection)] = generation.number, rank.number
        if hello["snapshot"] is not None:
            self._on_snapshot(generation, rank.number, **hello["snapshot"])
        self._on_steps(generation, rank, hello["steps"])
        if rank.number == 0:
            generation.progress = hello["progress"]
        self._advance(generation)

    def _on_snapshot(
        self, generation: Generation, rank: int, slot: int, progress: dict[str, Any]
    ) -> None:
        snapshot = self._book.add(generation, rank, slot, progress)
        if snapshot is None:
            return
        spread = self._engine.spread(snapshot.parts)
        if spread.done():
            self._book.keep(snapshot, spread.result())
        else:
            spread.add_done_callback(
                lambda done: self._post(partial(self._book.keep, snapshot, done.result()))
            )

    def _on_phase(self, generation: Generation, rank: Rank, message: Message) -> None:
        rank.phase = message["phase"]
        if rank.phase == "taken":
            rank.moved_bytes, rank.take_s = message["moved_bytes"], message["seconds"]
        if rank.phase == "paused" and rank.number == 0:
            generation.progress = message["progress"]
        self._advance(generation)

    def _on_steps(self, generation: Generation, rank: Rank, rows: Sequence[dict[str, Any]]) -> None:
        rank.own_times_s.extend(row["own_s"] for row in rows if row["own_s"] is not None)
        if rank.number != 0 or generation is not self._current:
            return
        for row in rows:
            if row["step"] > self._step:
                self._on_step(generation, row)

    def _on_step(self, generation: Generation, row: dict[str, Any]) -> None:
        self._step, self._loss, self._moved_at = row["step"], row["loss"], time.monotonic()
        self._failure, self._tried, self._attempts = None, [], 0
        made = StepRow(
            row["step"], row["loss"], row["time_s"], generation.plan.devices, generation.number
        )
        self._folder.append_step(made)
        if self._log is not None:
            self._log.append(_logged(row, made))
        disturbed = self._next is not None
        self._throughput.add(generation.plan.name, row, is_disturbed=disturbed)
        switch = self._switch
        if switch is None:
            return
        if switch.step is None:
            switch.stopped_at = row["end_at"]
        elif switch.add_step(row):
            self._finish_switch()

    # From one generation to the next.

    def _advance(self, generation: Generation) -> None:
        """Do what can be done now that a rank has come further."""
        if generation is self._next:
            self._advance_next(generation)
        elif generation is self._current:
            self._advance_current(generation)

    def _giver(self) -> Generation | None:
        """Return the generation that has the state in memory, if one lives."""
        current = self._current
        return None if current is None or current.is_over else current

    def _advance_next(self, generation: Generation) -> None:
        stage, giver = self._next_stage, self._giver()
        if stage == "starting" and generation.all_in("ready"):
            if giver is None:
                self._give_from_rest(generation)
                return
            self._map(generation, giver)
        elif stage == "mapping" and generation.all_in("mapped") and giver is not None:
            self._next_stage = "pausing"
            self._prepared(generation)
            giver.ask(PAUSE)
        elif stage == "taking" and generation.all_in("taken"):
            self._take_charge(generation)

    def _map(self, generation: Generation, giver: Generation) -> None:
        """Tell the next generation where the state will be that it is to take."""
        plan = str(generation.plan.path)
        try:
            generation.carrier = self._engine.carrier(giver.parts(), plan, generation.nodes())
        except UserError as error:
            self._abandon_next(str(error))
            return
        self._next_stage = "mapping"
        generation.tell_to_take("holders")

    def _abandon_next(self, why: str) -> None:
        """End the next generation, which cannot take the state over."""
        following = self._next
        if following is not None:
            self._next_failed(why)
            threading.Thread(target=following.host.kill, daemon=True).start()

    def _advance_current(self, generation: Generation) -> None:
        if generation.all_in("paused"):
            following = self._next
            if following is None:
                generation.tell_all({"kind": "go"})  # what was to follow has failed
            elif self._next_stage == "pausing":
                self._hand_over(generation, following)
        elif generation.all_in("done"):
            generation.tell_all({"kind": "leave"})
        elif generation.all_in("taken"):  # by the word of a coordinator that died before its next
            generation.tell_all({"kind": "go"})

    def _hand_over(self, giver: Generation, following: Generation) -> None:
        """Have the next generation take the state of this one, which stands still."""
        if self._switch is not None:
            self._switch.stood_at = time.monotonic()
        assert following.carrier is not None
        try:
            following.carrier.carry()
        except UserError as error:
            self._abandon_next(str(error))
            return
        self._next_stage = "taking"
        following.tell_to_take("take", progress=giver.progress)

    def _prepared(self, generation: Generation) -> None:
        took_s = time.monotonic() - generation.started_at
        if self._switch is not None:
            self._switch.prepared_s = took_s
        self._enter("switching")
        text = f"generation {generation.number} is ready after {took_s:.1f} s"
        self._event("prepared", text, prepared_s=took_s)

    def _give_from_rest(self, generation: Generation) -> None:
        """Give the newest state that is in no rank's hands: a snapshot, a checkpoint, the start."""
        self._next_stage = "taking"
        path, step = self._newest_file()
        if self._book.step is not None and self._book.step >= step:
            self._source = "a snapshot", self._book.step
            if self._give_snapshot(generation):
                return
        self._source = path.name, step
        generation.tell_all({"kind": "load", "path": str(path)})

    def _give_snapshot(self, generation: Generation) -> bool:
        """Give the newest snapshot; False where it went with a node or more."""
        newest = self._book.newest
        assert newest is not None
        generation.drop_carrier()
        plan = str(generation.plan.path)
        try:
            generation.carrier = self._engine.carrier(newest.parts, plan, generation.nodes())
            generation.carrier.carry()
        except UserError as error:
            self._event("lost", f"the snapshot of step {self._book.step}: {error}")
            self._book.forget()
            return False
        generation.tell_to_take("take", progress=newest.progress)
        return True

    def _newest_file(self) -> tuple[Path, int]:
        found = checkpoints_in(Path(self._settings.training["checkpoint"]))
        if found:
            return found[-1], int(found[-1].stem.removeprefix("step-"))
        resume = self._settings.training.get("resume")
        return Path(resume) if resume else self._family.initial, 0

    def _take_charge(self, generation: Generation) -> None:
        """Let the next generation train, and the one before it go."""
        before, self._current, self._next = self._current, generation, None
        self._saved.current = generation.number
        self._saved.write()
        generation.tell_all({"kind": "go"})
        at = time.monotonic()
        if before is not None and not before.is_over:
            before.tell_all({"kind": "leave"})
        self._moved_at = at
        self._throughput.begin()
        self._stragglers.begin()
        if self._stops:
            generation.ask(STOP)
        self._tell_of(generation, before, at)
        generation.drop_carrier()

    def _tell_of(self, generation: Generation, before: Generation | None, at: float) -> None:
        was, switch = self._state, self._switch
        self._enter("training")
        if switch is not None and was == "switching":
            switch.taken_at, switch.step = at, self._step
            switch.moved_bytes = sum(rank.moved_bytes for rank in generation.ranks.values())
            switch.carried_bytes = _carried_bytes(generation)
            return
        if before is None and was == "starting":
            self._begin_log_at(self._source[1])
            self._event("training", f"with {self._where(generation)} from step {self._step}")
        else:
            self._went_back(generation)

    def _went_back(self, generation: Generation) -> None:
        """Say how a crash was overcome: steps after the state that was found are taken again."""
        source, step = self._source
        again = max(0, self._step - step)
        self._begin_log_at(step)
        text = f"with {self._where(generation)} from {source} of step {step}"
        facts = {"repeated_steps": again, "carried_bytes": _carried_bytes(generation)}
        self._event("recovered", f"{text}, {again} steps are taken again", **facts)
        if self._switch is not None:
            self._refuse_switch(f"a generation was lost meanwhile; the job went on {text}")

    def _begin_log_at(self, step: int) -> None:
        """Take out of the logs what comes after ``step``: it will be done again."""
        self._step = step
        self._folder.truncate_steps(step)
        if self._log is not None:
            self._log.truncate(step)

    def _where(self, generation: Generation) -> str:
        count = generation.plan.devices
        return f"{count} device{'s' if count > 1 else ''} (plan {generation.plan.name})"

    def _finish_switch(self) -> None:
        switch, self._switch = self._switch, None
        if switch is None:
            return
        result = switch.result()
        text = (
            f"from {result.from_devices} to {result.to_devices} devices after step {result.step}, "
            f"stall {result.stall_s * 1e3:.0f} ms"
        )
        self._event("switched", text, **result.facts(), carried_bytes=switch.carried_bytes)
        switch.future.set_result(result)

    def _refuse_switch(self, why: str) -> None:
        switch, self._switch = self._switch, None
        if switch is not None:
            self._event("refused", why)
            switch.future.set_exception(RefusedError(why, is_conflict=True))

    # Requests.

    def _begin_switch(
        self,
        devices: int | None,
        name: str | None,
        to: Sequence[str] | None,
        method: str,
        future: Future[SwitchResult],
    ) -> None:
        try:
            self._check_switch(method)
            assert self._current is not None
            before = self._current.plan
            if devices is None:
                plan = before
            else:
                plan = self._plan_for(devices, name)
                if plan.name == before.name:
                    raise RefusedError(f"runs with plan {plan.name} already")
            chosen = self._choose_devices(plan.devices, to)
            self._switch = Switch(before.devices, plan, chosen, method, future)
            if method == "stop-resume":
                self._enter("switching")
                self._current.ask(STOP)
                return
            self._enter("preparing")
            self._event("preparing", f"{plan.devices} devices (plan {plan.name})")
            self._launch(plan, chosen)
        except (RefusedError, UserError) as error:
            refused = error if isinstance(error, RefusedError) else RefusedError(str(error))
            if self._switch is not None and self._switch.future is future:
                self._switch = None
                self._enter("training")
            future.set_exception(refused)

    def _check_switch(self, method: str) -> None:
        if method not in METHODS:
            raise RefusedError(f"method: expected one of {', '.join(METHODS)}, got: {method}")
        if self._stops:
            raise RefusedError("the job is being stopped", is_conflict=True)
        if self._switch is not None:
            plan = self._switch.plan.name
            raise RefusedError(f"a switch to plan {plan} is under way", is_conflict=True)
        if self._state != "training":
            raise RefusedError(f"the job is {self._state}, expected training", is_conflict=True)

    def _stop(self, future: Future[None]) -> None:
        self._stops.append(future)
        if self._current is not None and not self._current.is_over:
            self._current.ask(STOP)
        elif self._next is None or self._next_stage == "starting":
            self._over("stopped", "before it could train")

    # Ends.

    def _on_end(self, number: int, outcome: Outcome) -> None:
        generation = self._generations[number]
        generation.is_over = True
        generation.close()
        generation.drop_carrier()
        self._saved.generations.pop(str(number), None)
        result = outcome.get("result")
        if generation is self._next:
            self._next_failed(outcome.get("error") or "it ended by itself")
        elif generation is self._current and self._state not in _OVER:
            if result is None:
                self._lost(generation, str(outcome["error"]))
            else:
                self._current_ended(generation, result)
        self._book.forget_unless_newest(generation)

    def _current_ended(self, generation: Generation, result: dict[str, Any]) -> None:
        switch = self._switch
        if result["error"] is not None:
            self._over("failed", result["error"])
        elif result["step"] >= self._settings.steps:
            self._over("ended", f"after step {result['step']}")
        elif switch is not None and switch.method == "stop-resume":
            switch.stood_at = time.monotonic()
            self._launch(switch.plan, switch.devices)
        elif self._stops:
            self._over("stopped", f"after step {result['step']}")
        else:
            self._lost(generation, "it was left alone")

    def _next_failed(self, why: str) -> None:
        failed, self._next = self._next, None
        if failed is None or self._state in _OVER:
            return
        text = f"generation {failed.number} ({failed.plan.devices} devices) failed: {why}"
        giver = self._giver()
        if giver is None:
            self._event("lost", text)
            self._recover(failed.plan, why)
            return
        self._enter("training")
        self._refuse_switch(text)
        if giver.all_in("paused"):
            giver.tell_all({"kind": "go"})

    def _lost(self, generation: Generation, why: str) -> None:
        """Go on after a crash of the generation in charge."""
        self._event("lost", f"generation {generation.number} at step {self._step}: {why}")
        following = self._next
        if following is None or self._next_stage == "taking":
            if following is None:
                self._recover(generation.plan, why)
            return  # the next one reads the state of the dead, whose memory it has
        self._enter("recovering")
        if following.all_in("ready", "mapped"):
            self._give_from_rest(following)
        else:
            self._next_stage = "starting"

    def _recover(self, plan: FamilyPlan, why: str) -> None:
        """Start a generation again: with the same plan, then with fewer devices."""
        if self._stops:
            self._over("stopped", f"after a crash: {why}")
            return
        failure = self._step, why
        if failure == self._failure:
            self._tried.append(plan.name)
        self._failure, self._attempts = failure, self._attempts + 1
        found = self._plan_after_crash(plan)
        if found is None or self._attempts > _ATTEMPTS or self._is_hopeless(why):
            self._over("failed", why)
            return
        if self._state != "starting":
            self._enter("recovering")
        try:
            self._launch(found, self._choose_devices(found.devices))
        except (RefusedError, UserError) as error:
            self._tried.append(found.name)
            self._recover(found, str(error))

    def _is_hopeless(self, why: str) -> bool:
        """Say whether what never ran has said why: it would say it again."""
        return self._state == "starting" and "kill" not in why

    def _plan_after_crash(self, plan: FamilyPlan) -> FamilyPlan | None:
        """Return the plan to go on with: of those not tried in vain, that with most devices."""
        there = len(self._engine.devices())
        least = min(self._settings.min_devices, plan.devices)
        if plan.name not in self._tried and plan.devices <= there:
            return plan
        rest = [
            self._family.for_devices(count)
            for count in self._family.counts
            if least <= count <= min(there, plan.devices)
        ]
        left = [one for one in rest if one.name not in self._tried]
        return max(left, key=lambda one: one.devices, default=None)

    def _over(self, state: State, text: str) -> None:
        if state == "failed":
            self._error = text
        self._finish_or_refuse()
        self._ended_at = time.time()
        self._event(state, text)
        self._enter(state)
        for future in self._stops:
            future.set_result(None)

    def _finish_or_refuse(self) -> None:
        switch = self._switch
        if switch is not None and switch.step is not None:
            with suppress(IndexError):
                self._finish_switch()
                return
        self._refuse_switch("the job ended first")

    def _end_all(self) -> None:
        living = [g for g in self._generations.values() if not g.is_over]
        for generation in living:
            threading.Thread(target=generation.host.kill, daemon=True).start()
        deadline = time.monotonic() + 2 * _ADOPT_S
        while any(not g.is_over for g in living) and time.monotonic() < deadline:
            with suppress(queue.Empty):
                self._calls.get(timeout=0.1)()

    # Finding what a coordinator left that died.

    def _adopt(self) -> None:
        """Find the generations of a coordinator that died, and go on with the one in charge."""
        last = self._saved.generations.get(str(self._saved.current))
        for text, saved in sorted(self._saved.generations.items()):
            number = int(text)
            ended = partial(self._ended, number)
            host = self._engine.find(saved.host, self._folder.path, ended)
            if host is None:
                continue
            plan = self._family.plan(saved.plan)
            found = Generation(number, plan, tuple(saved.devices), host)
            self._generations[number] = found
            if number == self._saved.current:
                self._current = found
            else:
                threading.Thread(target=host.kill, daemon=True).start()
        self._saved.generations = {
            str(n): self._saved.generations[str(n)] for n in self._generations
        }
        self._enter("recovering" if self._current is None else "training")
        what = "its ranks are there" if self._current else "its ranks are gone"
        self._event("started", f"again at step {self._step}: {what}")
        self._moved_at = time.monotonic()
        if self._current is None:
            plan = self._first_plan() if last is None else self._family.plan(last.plan)
            self._launch(plan, self._choose_devices(plan.devices))

    def _first_plan(self) -> FamilyPlan:
        return self._plan_for(self._settings.devices, self._settings.plan)

    # Now and then.

    def _tick(self) -> None:
        current, stall_s = self._current, self._settings.stall_s
        self._folder.flush_steps()
        if current is None or current.is_over or self._state not in ("training", "preparing"):
            return
        if stall_s is not None and time.monotonic() - self._moved_at > stall_s:
            self._event("lost", f"no step within --stall {stall_s:g} s: it is ended")
            self._moved_at = time.monotonic()
            threading.Thread(target=current.host.kill, daemon=True).start()
        elif self._state == "training":
            self._look_for_stragglers(current)

    def _look_for_stragglers(self, current: Generation) -> None:
        found = self._stragglers.look(current.statuses())
        if found is None:
            return
        self._event("straggler", found.text, **found.facts)
        if self._settings.replace_stragglers:
            self.migrate()

    def _event(self, kind: str, text: str, **facts: Any) -> None:
        self._folder.append_event(self._step, kind, text, facts)

    def _enter(self, state: State) -> None:
        self._state = state
        self._publish()

    def _publish(self) -> JobStatus:
        self._status = self._made_status()
        self._folder.write_status(self._status)
        return self._status

    def _made_status(self) -> JobStatus:
        generation = self._current or self._next
        plan = generation.plan if generation is not None else None
        name = plan.name if plan is not None else ""
        status = JobStatus(
            name=self._settings.name,
            state=self._state,
            step=self._step,
            steps=self._settings.steps,
            devices=plan.devices if plan is not None else self._settings.devices,
            plan=name,
            generation=generation.number if generation is not None else 0,
            family=self._settings.family,
            loss=self._loss,
            step_time_s=self._throughput.step_time_s(name),
            samples_per_s=self._throughput.samples_per_s(name),
            snapshot_step=self._book.step,
            started_at=self._saved.started_at,
            ended_at=self._ended_at,
            error=self._error,
        )
        if self._switch is not None:
            status = replace(status, switching_to=self._switch.plan.name)
        return status if generation is None else replace(status, ranks=generation.statuses())


def _carried_bytes(generation: Generation) -> int:
    """Return what of the state that a generation took went from node to node."""
    return 0 if generation.carrier is None else generation.carrier.carried_bytes


def _logged(row: dict[str, Any], made: StepRow) -> dict[str, Any]:
    """Return what ``--log`` has of a step: what tensoropt-run logs, and the devices."""
    names = ("loss_scale", "skipped")
    optional = {name: row[name] for name in names if row[name] not in (None, False)}
    return {**vars(made), "learning_rate": row["learning_rate"], **optional}
