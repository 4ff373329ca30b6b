"""Optimizer steps on all ranks, and the handling of losses, overflows and bad data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.ops import library
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.checkpoint import Progress
from tensoropt.runtime.training.data.ahead import Ahead
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.data.source import Parts
from tensoropt.runtime.training.diagnose import first_not_finite
from tensoropt.runtime.training.evaluation import Evaluation
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.labels import check_labels, describe_integers
from tensoropt.runtime.training.loss import BatchLoss, loss_of_step
from tensoropt.runtime.training.schedule import LossScale, learning_rate, seed_of
from tensoropt.runtime.training.staged import StagedStep
from tensoropt.runtime.training.step import TrainingStep

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["StepFacts", "StoppedError", "Trainer"]


class StoppedError(Exception):
    """Training cannot continue; on all ranks the state is the state after the last good step."""


@dataclass(frozen=True)
class StepFacts:
    """One step for the log; ``time_s`` is the time on this rank, including reading the data.

    ``own_s`` is ``time_s`` without the time in collectives, which is mostly waiting for slower
    ranks; None on a device, as its time is not measured. ``loss`` is None if no label counts.
    ``evaluation_loss`` is the loss on held-out data after the step, if it was computed.
    ``not_finite`` is "loss" or "gradients" if these, and so their norm, are not finite.
    """

    step: int
    loss: float | None
    time_s: float
    learning_rate: float
    loss_scale: float | None = None
    skipped: bool = False
    own_s: float | None = None
    not_finite: str | None = None
    evaluation_loss: float | None = None


class Trainer:
    """Training steps of a rank from ``progress`` on; ``written`` is the last checkpoint's path."""

    def __init__(
        self,
        job: TrainJob,
        step: TrainingStep | StagedStep,
        progress: Progress,
        threads: int,
        comm: MPI.Comm,
    ) -> None:
        self.job, self._step, self.progress = job, step, progress
        self.plan, self.held = step.plan, step.held
        self.total = job.total_steps or progress.step + job.steps
        self.skipped, self.asked = 0, 0
        self.written: Path | None = None
        self._threads, self._comm = threads, comm
        self._waited_s = 0.0
        self._own = self.plan.batches_of(comm.rank)
        self._read: Mapping[str, Array] = {}  # the last micro-batch
        self._scale = self._loss_scale()
        self._evaluation: Evaluation | None = None
        self._ahead = self._data_ahead()

    def constant_bytes(self) -> int:
        return self._step.constant_bytes()

    def nodes_on_cpu(self) -> int | None:
        return self._step.nodes_on_cpu()

    def _data_ahead(self) -> Ahead:
        """Open the data, to read ahead the rank's parts for the steps of the job."""
        inputs, size = self.plan.plan.inputs, self.plan.batch
        self.data = open_dataset(str(self.job.data), inputs, size, self.job.shuffle)
        read, place = [t for t in inputs if t.name in self._step.batch], self._place()
        bounds = {t.name: [int(n) for n in t.shape] for t in read}
        parts: Parts = {t.name: t.layout.bounds(bounds[t.name], place) for t in read}
        if self.job.evaluate_data is not None:
            self._evaluation = Evaluation(self.job, self.plan, parts)
        end = self.progress.samples + self.job.steps * self.plan.samples_per_step
        start, own, batches = self.progress.samples, self._own, self.plan.micro_batches

        def following(position: int) -> int:
            """Return the position of the rank's next micro-batch."""
            is_last = (position - start) // size % batches + 1 == own.stop
            return position + size * (batches - len(own) + 1 if is_last else 1)

        return Ahead(lambda position: self.data.read(position, parts), following, end)

    def _place(self) -> int:
        return self.plan.place(self._comm.rank)

    def _loss_scale(self) -> LossScale | None:
        if not self.plan.scales_loss:
            return None
        scale = LossScale(self.job.loss_scale)
        if not scale.fixed and self.progress.loss_scale is not None:
            scale.value, scale.good = self.progress.loss_scale, self.progress.good_steps
        return scale

    def step(self, *, ask: int = 0, before_update: Callable[[], None] = lambda: None) -> StepFacts:
        """Take one step; ``asked`` becomes the maximum of ``ask`` over all ranks.

        ``before_update`` is called immediately before parameters and moments change. They do not
        change between two updates.

        If the loss or a gradient is not finite, the state stays as before the step, and unless such
        steps are skipped, raises `StoppedError` on all ranks. Raises `UserError` on a rank with
        faulty data or a faulty graph.
        """
        start, before_s = time.perf_counter(), self._in_collectives_s()
        number = self.progress.step + 1
        rate = self._rate(number)
        self._step.start()
        self.held.remember()
        self._step.set("learning_rate", rate)
        self._step.set("step", self.progress.updates + 1)
        if self._scale is not None:
            self._step.set("loss_scale", self._scale.value)
        loss, weight = loss_of_step(self._of_all_replicas(self._losses(number)))
        is_good = self._agree(loss, ask)
        # Without a label that counts all gradients are zero, and any weight keeps them so.
        self._step.set("loss_weight", weight or 1.0)
        scale = self._scale.value if self._scale else None
        before_update()
        cause = None if is_good else "gradients" if _is_finite(loss) else "loss"
        if cause is None:
            self._step.run_update()
        else:
            self._drop(number, loss, cause)
        self._advance(is_good)
        time_s = time.perf_counter() - start
        own_s: float | None = time_s - (self._in_collectives_s() - before_s)
        own_s = own_s if self.job.provider == "cpu" else None
        return StepFacts(number, loss, time_s, rate, scale, not is_good, own_s, cause)

    def evaluate(self) -> float | None:
        """Return the loss on the held-out data, None if no label of them counts.

        Parameters and moments do not change. All ranks must call this. Raises `UserError` for
        faulty data.
        """
        assert self._evaluation is not None, "the job has data for it"

        def losses(batch: Callable[[int], Mapping[str, Array]]) -> list[BatchLoss]:
            self._step.start()
            return self._of_all_replicas(self._step.losses(lambda _: 0, batch))

        try:
            return self._evaluation.loss(losses)
        except UserError as error:
            raise UserError(f"evaluation after step {self.progress.step}: {error}") from None

    def _in_collectives_s(self) -> float:
        return self._waited_s + self._step.waited_s + library.collectives_s()

    def _rate(self, number: int) -> float:
        job = self.job
        own = (job.learning_rate, job.warmup, job.schedule, self.total, job.min_learning_rate)
        return learning_rate(number, *own)

    def go_on_from(self, progress: Progress) -> None:
        """Continue from ``progress``; the caller has set the state to match."""
        self.progress = progress
        self._scale = self._loss_scale()
        self._ahead.start(progress.samples + self._own.start * self.plan.batch)

    def _losses(self, number: int) -> list[BatchLoss]:
        try:
            return self._step.losses(partial(self._seed, number), self._batch)
        except UserError as error:
            hint = describe_integers(str(error), self._read)
            raise UserError(f"step {number}: {error}{hint}") from None

    def _of_all_replicas(self, losses: list[BatchLoss]) -> list[BatchLoss]:
        """Return the losses of all micro-batches; ``losses`` are of the rank's own."""
        if self.plan.plan.replicas == 1:
            return losses
        start = time.perf_counter()
        found = self._comm.allgather(losses)
        self._waited_s += time.perf_counter() - start
        firsts = range(0, len(found), len(found) // self.plan.plan.replicas)
        return [loss for rank in firsts for loss in found[rank]]

    def _seed(self, number: int, micro: int) -> int:
        return seed_of(self.job.seed, number, micro)

    def _batch(self, micro: int) -> Mapping[str, Array]:
        """Return the rank's part of one micro-batch, checked, and start to read the next ones."""
        self._read = self._ahead.get(self.progress.samples + micro * self.plan.batch)
        for name, array in self._read.items():
            check_labels(self.plan, name, array)
        return self._read

    def _agree(self, loss: float | None, ask: int) -> bool:
        """Return whether the step is good on every rank."""
        from mpi4py import MPI

        bad = not _is_finite(loss) or not self._step.gradients_are_finite()
        flags = np.array([bad, ask], np.int32)
        start = time.perf_counter()
        self._comm.Allreduce(MPI.IN_PLACE, flags, MPI.MAX)
        self._waited_s += time.perf_counter() - start
        self.asked = int(flags[1])
        return not flags[0]

    def _drop(self, number: int, loss: float | None, cause: str) -> None:
        """Undo a bad step: the loss scale was too large, it is skipped, or training stops."""
        self.held.restore()
        overflowed = cause == "gradients" and self._scale is not None and self._scale.overflowed()
        if overflowed or self.job.skip_not_finite:
            self.skipped += 1
            return
        text = "a gradient is not finite" if cause == "gradients" else f"the loss is {loss}"
        raise StoppedError(f"step {number}: {text}")

    def first_not_finite(self) -> str:
        """Return the first value of the next step that is not finite; all ranks must call this."""
        number = self.progress.step + 1
        for micro in range(self.plan.micro_batches):
            seed = partial(self._seed, number)
            given = seed, self._batch, self._threads, self._comm
            found = first_not_finite(self._step, micro, *given)
            if found is not None:
                return found
        return "nothing in a run of the graph unoptimised"

    def _advance(self, is_good: bool) -> None:
        if is_good and self._scale is not None:
            self._scale.count_good_step()
        before = self.progress
        self.progress = replace(
            before,
            step=before.step + 1,
            updates=before.updates + is_good,
            samples=before.samples + self.plan.samples_per_step,
            loss_scale=self._scale.value if self._scale else None,
            good_steps=self._scale.good if self._scale else 0,
        )


def _is_finite(loss: float | None) -> bool:
    return loss is None or math.isfinite(loss)
