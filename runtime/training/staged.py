"""A rank's training step in stages: the graphs of its chunks, run in the order of the schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.plan.graphs import UPDATE, graph_name
from tensoropt.runtime.plan.stages import Stages
from tensoropt.runtime.session.messages import Messages
from tensoropt.runtime.session.stage import Batch, StageGraphs
from tensoropt.runtime.stages.schedule import Task
from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.finite import all_finite
from tensoropt.runtime.training.loss import BatchLoss
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import Step

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["StagedStep"]


class StagedStep(Step):
    """The sessions of one rank of a stage, and the arrays that they read and write.

    ``batch`` are the inputs of the model that the stage reads. Creates all sessions; raises
    `UserError`. ``comm`` is for the messages of this step alone.
    """

    def __init__(
        self, plan: TrainingPlan, state: Held, threads: int, comm: MPI.Comm, folder: Path | None
    ) -> None:
        assert plan.stages is not None
        self.stages: Stages = plan.stages
        self.stage = plan.stage(state.rank)
        update = graph_name(UPDATE, self.stage)
        super().__init__(plan, state, plan.graphs(state.rank), update, threads, folder)
        self._messages = Messages(comm, plan.place(state.rank), math.prod(plan.plan.mesh))
        self._graphs = StageGraphs(
            plan.stages, self.stage, self.sessions, self._messages, state.provider, plan.plan.inputs
        )
        self.batch = self._graphs.batch
        self._messages.check_tags(self._graphs.tags + len(plan.state), str(plan.folder))
        self._bind()

    @property
    def waited_s(self) -> float:
        """The time in messages outside of the graphs."""
        return self._messages.waited_s

    def _bind(self) -> None:
        """Bind the arrays that stay: state, gradients, scalars and the loss."""
        plan, held = self.plan, self.held
        read = {**self.sums, **self.scalars, **held.state, **held.gradients}
        changed = {s.result: held.state[s.name] for s in plan.state_of(held.rank)}
        written = {**changed, **held.gradients, **self._losses}
        for graph in self.sessions:
            self.bind(graph, read, written, {*self._graphs.passed, *self._graphs.inputs})

    def rehearse(self) -> None:
        """Run all graphs of a step once on arbitrary values.

        The state must be loaded afterwards. All ranks must call this. Raises `UserError`.
        """
        tensors = [self._graphs.inputs[name] for name in self.batch]
        zeros = {t.name: np.zeros(t.local_shape(), dtype_of(t.dtype)) for t in tensors}
        self.losses(lambda _: 0, lambda _: zeros)
        self.run_update()

    def losses(self, seed: Callable[[int], int], batch: Batch) -> list[BatchLoss]:
        """Run all forward and backward passes; returns the loss of each micro-batch.

        ``seed`` and ``batch`` return the seed and the inputs of a micro-batch. All ranks must call
        this. Raises `UserError`, which names the stage and the task.
        """
        losses = [BatchLoss(math.nan)] * self.plan.micro_batches
        last = self.stages.schedule.chunks - 1
        for task in self.stages.schedule.orders[self.stage]:
            try:
                self.run(task, seed, batch)
            except UserError as error:
                raise UserError(f"stage {self.stage}, task {task}: {error}") from None
            if task.work == "F" and task.chunk == last:
                losses[task.micro_batch] = self.batch_loss()
        self.end_sends()
        root = self.stages.schedule.places[last] * math.prod(self.plan.plan.mesh)
        return self._messages.waited(lambda: self._messages.comm.bcast(losses, root))

    def run(self, task: Task, seed: Callable[[int], int], batch: Batch) -> None:
        """Run one task of this stage: receive its inputs, run its graph, send its results."""
        self.set("seed", seed(task.micro_batch))
        self._graphs.run(task, batch)

    def run_update(self) -> None:
        """Run the update of this stage, and pass on the new parameters that other stages read."""
        self.update.run()
        shared = [
            (self.held.state[state.name], owner, reader, self._graphs.tags + number)
            for number, state in enumerate(self.plan.state)
            for owner in [self.stages.stage_of(state.graph)]
            for reader in sorted({*map(self.stages.stage_of, state.read_by)} - {owner})
            if self.stage in (owner, reader)
        ]
        for array, owner, reader, tag in shared:
            if owner == self.stage:
                self._messages.send(reader, array, tag)
        for array, owner, reader, tag in shared:
            if reader == self.stage:
                self._messages.receive(owner, array, tag)
        self.end_sends()

    def end_sends(self) -> None:
        """Wait until all values have been sent."""
        self._messages.end_sends()

    def not_finite(self, graph: str) -> list[str]:
        """Return the results of a graph's last run that are not finite, in their order."""
        return [name for name, array in self.sessions[graph].results() if not all_finite(array)]
