"""Recovery after the crash of a generation, or of the previous coordinator."""

from __future__ import annotations

import re
import time

from tensoropt.elastic.control import OVER, RefusedError
from tensoropt.elastic.coordinator.generations import Generation
from tensoropt.elastic.coordinator.handover import HandOver
from tensoropt.elastic.coordinator.job import Job
from tensoropt.elastic.coordinator.persistence import NoRoomError
from tensoropt.runtime.family.family import FamilyPlan
from tensoropt.runtime.support.errors import UserError

__all__ = ["Recovery"]

_ATTEMPTS = 10  # to recover without progress in between

_OWN_WORDS = re.compile(r"rank \d+ of \d+: (.*)")
"""An error that a rank reported itself, as `runtime.launch.reason` writes it."""

_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
"""The address of an object, which differs from process to process."""


class Recovery:
    """Chooses the plan to continue with, and starts its generation, after a loss."""

    def __init__(self, job: Job, handover: HandOver) -> None:
        self._job, self._handover = job, handover
        self._waiting: FamilyPlan | None = None

    def handle_next_failure(self, why: str) -> None:
        """Handle the loss of the next generation: continue with the current one, or recover."""
        if self._job.state in OVER:
            return
        failed = self._handover.abandon_next(why)
        if failed is not None and self._job.giver() is None:
            self._job.event("lost", failed.failure_text(why))
            self.recover(failed.plan, why)

    def handle_loss(self, generation: Generation, why: str) -> None:
        """Handle a crash of the generation in charge."""
        self._job.event("lost", f"generation {generation.number} at step {self._job.step}: {why}")
        following = self._job.next
        if following is None or self._job.next_stage == "taking":
            if following is None and not self._fails_again(why):
                self.recover(generation.plan, why)
            return  # the next one has mapped the dead ranks' memory and reads on
        self._job.enter("recovering")
        if following.all_in("ready", "mapped"):
            self._handover.give_from_rest(following)
        else:
            self._job.next_stage = "starting"

    def _fails_again(self, why: str) -> bool:
        """End the job if training ranks report the same error twice after the same step.

        Other devices do not help against, say, a sample that cannot be read. A killed rank reports
        nothing: that may be the machine's fault, and `recover` limits the attempts.
        """
        found = _OWN_WORDS.fullmatch(why)
        if found is None or self._job.stops:
            return False
        failure = self._job.step, _ADDRESS.sub("", found[1])
        if failure in self._job.crashes.in_training:
            self._job.finish("failed", f"{why} (twice, after step {self._job.step})")
            return True
        self._job.crashes.in_training.add(failure)
        return False

    def recover(self, plan: FamilyPlan, why: str) -> None:
        """Start a generation again: with the same plan, then with fewer devices."""
        if self._job.stops:
            self._job.finish("stopped", f"after a crash: {why}")
            return
        crashes, failure = self._job.crashes, (self._job.step, why)
        is_same, crashes.last = failure == crashes.last, failure
        crashes.count += 1
        crashes.step = max(crashes.step, self._job.step)
        if is_same:
            crashes.tried.append(plan.name)
        # A job that never ran and fails repeatedly in the same way does not depend on devices.
        is_hopeless = is_same and crashes.count > 2 and self._job.state == "starting"
        found = self._plan_after_crash(plan)
        if found is None or crashes.count > _ATTEMPTS or is_hopeless:
            self._job.finish("failed", why)
            return
        if self._job.state != "starting":
            self._job.enter("recovering")
        self._launch(found)

    def _launch(self, plan: FamilyPlan) -> None:
        """Start a generation; on a full disk, keep the state in memory and let `retry` start it."""
        try:
            self._job.launch(plan, self._job.choose_devices(plan.devices))
        except NoRoomError:
            self._waiting = plan
        except (RefusedError, UserError) as error:
            self._job.crashes.tried.append(plan.name)
            self.recover(plan, str(error))

    def retry(self) -> None:
        """Start the generation that waits for disk space, if there is one."""
        plan, self._waiting = self._waiting, None
        if plan is not None and self._job.state not in OVER:
            self._launch(plan)

    def _plan_after_crash(self, plan: FamilyPlan) -> FamilyPlan | None:
        """Return the plan to continue with: ``plan``, or the one with most devices, if not tried.

        None if every plan of at least ``min_devices`` has been tried in vain.
        """
        available = len(self._job.engine.devices())
        least = min(self._job.settings.min_devices, plan.devices)
        if plan.name not in self._job.crashes.tried and plan.devices <= available:
            return plan
        for count in sorted(self._job.family.counts, reverse=True):
            if not least <= count <= min(available, plan.devices):
                continue
            try:
                found = self._job.family.for_devices(count)
            except UserError as error:
                self._job.event("damaged", str(error))
                continue
            if found.name not in self._job.crashes.tried:
                return found
        return None

    def adopt(self) -> None:
        """Find the generations of a dead coordinator, and continue with the one in charge."""
        last = self._job.saved.generations.get(str(self._job.saved.current))
        for text, saved in sorted(self._job.saved.generations.items()):
            number = int(text)
            ended = self._job.end_callback(number)
            host = self._job.engine.find(saved.host, self._job.folder.path, ended)
            if host is None:
                continue
            plan = self._job.family.plan(saved.plan)
            found = Generation(number, plan, tuple(saved.devices), host)
            self._job.generations[number] = found
            if number == self._job.saved.current:
                self._job.current = found
            else:
                found.end()
        self._job.saved.generations = {
            str(n): self._job.saved.generations[str(n)] for n in self._job.generations
        }
        self._job.enter("recovering" if self._job.current is None else "training")
        ranks = "its ranks are alive" if self._job.current else "its ranks are gone"
        self._job.event("started", f"again at step {self._job.step}: {ranks}")
        self._job.moved_at = time.monotonic()
        if self._job.current is None:
            plan = self._job.first_plan() if last is None else self._job.family.plan(last.plan)
            self._job.launch(plan, self._job.choose_devices(plan.devices))
