"""State transfer to a new generation: live from the one before, or from a stored state."""

from __future__ import annotations

import time

from tensoropt.elastic.coordinator.generations import Generation
from tensoropt.elastic.coordinator.job import Job
from tensoropt.elastic.coordinator.stragglers import Stragglers
from tensoropt.elastic.coordinator.switch import advice
from tensoropt.elastic.generation.messages import PAUSE, PAUSE_ON_HOST, STOP
from tensoropt.runtime.support.errors import UserError

__all__ = ["HandOver"]


class HandOver:
    """Transfers the state to the next generation, and releases the one before it."""

    def __init__(self, job: Job, stragglers: Stragglers) -> None:
        self._job, self._stragglers = job, stragglers

    def advance(self, generation: Generation) -> None:
        """Take the next action of the transfer, after a rank has entered a phase."""
        if generation is self._job.next:
            self._advance_next(generation)
        elif generation is self._job.current:
            self._advance_current(generation)

    def _advance_next(self, generation: Generation) -> None:
        stage, giver = self._job.next_stage, self._job.giver()
        if stage == "starting" and generation.all_in("ready"):
            if giver is None:
                self.give_from_rest(generation)
                return
            self._map(generation, giver)
        elif stage == "mapping" and generation.all_in("mapped") and giver is not None:
            self._job.next_stage = "pausing"
            self._report_prepared(generation)
            giver.ask(PAUSE_ON_HOST if generation.moved_by() == "host" else PAUSE)
        elif stage == "taking" and generation.all_in("taken"):
            self._take_charge(generation)
        elif stage == "taking" and generation.all_in("damaged"):
            self._give_older(generation)

    def _advance_current(self, generation: Generation) -> None:
        if generation.all_in("paused"):
            following = self._job.next
            if following is None:
                generation.send_all({"kind": "go"})  # the next generation has failed
            elif self._job.next_stage == "pausing":
                self._hand_over(generation, following)
        elif generation.all_in("done"):
            self._let_go(generation)
        elif generation.all_in("taken"):  # the coordinator that ordered it died before "go"
            generation.send_all({"kind": "go"})

    def _map(self, generation: Generation, giver: Generation) -> None:
        """Send the next generation the places of the state that it will take."""
        plan = str(generation.plan.path)
        try:
            carrier = self._job.engine.carrier(giver.parts(), plan, generation.nodes())
        except UserError as error:
            self.abandon_next(str(error))
            return
        generation.carrier = carrier
        self._job.next_stage = "mapping"
        generation.send_take_orders("holders")

    def _hand_over(self, giver: Generation, following: Generation) -> None:
        """Have the next generation take the state of the paused ``giver``."""
        if self._job.switch is not None:
            self._job.switch.stood_at = time.monotonic()
        assert following.carrier is not None
        try:
            following.carrier.carry()
        except UserError as error:
            self.abandon_next(str(error))
            return
        self._job.next_stage = "taking"
        following.send_take_orders("take", progress=giver.progress)

    def abandon_next(self, why: str) -> Generation | None:
        """End the next generation and let the current one, if it lives, continue.

        Returns the generation that failed, None if there was none.
        """
        failed, self._job.next = self._job.next, None
        if failed is None:
            return None
        if not failed.is_over:
            failed.end()
        giver = self._job.giver()
        if giver is not None:
            self._job.enter("training")
            self._job.refuse_switch(f"{failed.failure_text(why)}{advice(why)}")
            if giver.all_in("paused"):
                giver.send_all({"kind": "go"})
        return failed

    def _report_prepared(self, generation: Generation) -> None:
        took_s = time.monotonic() - generation.started_at
        if self._job.switch is not None:
            self._job.switch.prepared_s = took_s
        self._job.enter("switching")
        text = f"generation {generation.number} is ready after {took_s:.1f} s"
        why = generation.why_not_device()
        if why is not None:
            text = f"{text}; its state is moved through host memory: {why}"
        self._job.event("prepared", text, prepared_s=took_s)

    def give_from_rest(self, generation: Generation) -> None:
        """Transfer the newest stored state: a snapshot, a checkpoint, or the initial state."""
        self._job.next_stage = "taking"
        path, step = self._job.newest_file()
        book = self._job.book
        if book.step is not None and book.step >= step:
            self._job.source = "a snapshot", book.step
            if self._give_snapshot(generation):
                return
        self._job.source = path.name, step
        generation.send_all({"kind": "load", "path": str(path)})

    def _give_older(self, generation: Generation) -> None:
        """Transfer the second newest state, because the newest file is damaged.

        A damaged checkpoint of the job is renamed, so that no later crash returns to it and no
        older checkpoint is removed because of it. If the initial file is damaged, the job fails.
        """
        damage = str(generation.ranks[0].damage)
        path = self._job.set_aside_newest()
        if path is None:
            self._job.finish("failed", damage)
            return
        self._job.event("damaged", f"{damage}; renamed to {path.name}")
        self.give_from_rest(generation)

    def _give_snapshot(self, generation: Generation) -> bool:
        """Transfer the newest snapshot; return False if some of it was lost with its nodes."""
        book = self._job.book
        assert book.newest is not None
        generation.drop_carrier()
        plan = str(generation.plan.path)
        try:
            carrier = self._job.engine.carrier(book.newest.parts, plan, generation.nodes())
            generation.carrier = carrier
            carrier.carry()
        except UserError as error:
            self._job.event("lost", f"the snapshot of step {book.step}: {error}")
            book.forget()
            return False
        generation.send_take_orders("take", progress=book.newest.progress)
        return True

    def _take_charge(self, generation: Generation) -> None:
        """Let the next generation train, and the one before it leave."""
        before = self._job.current
        self._job.take_charge(generation)
        at = time.monotonic()  # ranks may begin before the last one receives the order
        generation.send_all({"kind": "go"})
        if before is not None and not before.is_over:
            self._let_go(before)
        self._job.moved_at = at
        self._job.throughput.begin()
        self._stragglers.begin()
        if self._job.stops:
            generation.ask(STOP)
        self._report_start(generation, before, at)
        generation.drop_carrier()

    def _let_go(self, generation: Generation) -> None:
        """Let ranks end; flush first, as they cannot report their steps again afterwards."""
        self._job.folder.flush()
        generation.send_all({"kind": "leave"})

    def _report_start(self, generation: Generation, before: Generation | None, at: float) -> None:
        was, switch = self._job.state, self._job.switch
        self._job.enter("training")
        if switch is not None and was == "switching":
            switch.taken_at, switch.step = at, self._job.step
            switch.carried_bytes = _carried_bytes(generation)
            switch.moved_bytes = sum(rank.moved_bytes for rank in generation.ranks.values())
            switch.moved_by = generation.moved_by()
            return
        if before is None and was == "starting":
            self._job.begin_log_at(self._job.source[1])
            where = self._job.describe_devices(generation)
            self._job.event("training", f"with {where} from step {self._job.step}")
        else:
            self._report_recovery(generation)

    def _report_recovery(self, generation: Generation) -> None:
        """Record the recovery from a crash; the steps after the restored state are repeated."""
        source, step = self._job.source
        again = max(0, self._job.step - step)
        self._job.begin_log_at(step)
        text = f"with {self._job.describe_devices(generation)} from {source} of step {step}"
        facts = {"repeated_steps": again, "carried_bytes": _carried_bytes(generation)}
        self._job.event("recovered", f"{text}, {again} steps are repeated", **facts)
        if self._job.switch is not None:
            self._job.refuse_switch(f"a generation was lost during it; the job continued {text}")


def _carried_bytes(generation: Generation) -> int:
    """Return the bytes of a generation's state that were copied between nodes."""
    return 0 if generation.carrier is None else generation.carrier.carried_bytes
