"""A rank's training step in stages: the graphs of its chunks, run in the order of the schedule.

A value that passes between graphs stays on the rank until its last reader has run, for each
micro-batch separately. Rank r of a stage sends its part to rank r of another stage. Sends return at
once, so that only the order of the tasks could stop a stage, which plan.json is checked for.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray, Provider
from tensoropt.runtime.plan.graphs import UPDATE, graph_name, work_graph
from tensoropt.runtime.plan.stages import Stages
from tensoropt.runtime.stages.schedule import Task
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.finite import all_finite
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import Step

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["StagedStep"]

T = TypeVar("T")


@dataclass(eq=False)
class _Value:
    """A value on this rank; ``readers`` and ``sends`` are those that it still waits for."""

    array: PlacedArray
    readers: int
    sends: int = 0


class _Arrays:
    """Arrays for values, which other values of the same shape and type take over."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._free: dict[tuple[tuple[int, ...], str], list[PlacedArray]] = {}

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> PlacedArray:
        """Return an array with any elements."""
        free = self._free.get((shape, dtype.name))
        return free.pop() if free else self._provider.empty(shape, dtype)

    def give(self, array: PlacedArray) -> None:
        """Take an array back."""
        self._free.setdefault((array.shape, array.dtype.name), []).append(array)


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
        self.stage, self._place = plan.stage(state.rank), plan.place(state.rank)
        update = graph_name(UPDATE, self.stage)
        super().__init__(plan, state, plan.graphs(state.rank), update, threads, folder)
        self._comm, provider = comm, state.provider
        self._passed = {own.name: number for number, own in enumerate(self.stages.passed)}
        self._readers = Counter(
            name for session in self.sessions.values() for name in session.inputs
        )
        self.batch = [t.name for t in plan.plan.inputs if t.name in self._readers]
        self._inputs = {t.name: t for t in plan.plan.inputs}
        self._arrays = _Arrays(provider)
        self._values: dict[tuple[str, int], _Value] = {}
        self._sent: list[tuple[MPI.Request, Array, _Value | None]] = []
        self._check_tags()
        self._bind()

    def _check_tags(self) -> None:
        """Raise `UserError` if MPI has too few tags: a tag is of one value of one micro-batch."""
        from mpi4py import MPI

        needed = self._tag(len(self._passed), 0) + len(self.plan.state)
        most = self._comm.Get_attr(MPI.TAG_UB)
        if most is not None and needed > most:
            raise UserError(
                f"{self.plan.folder}: passes {needed} values in a step, expected at most {most}, "
                "the tags of this MPI; fewer micro-batches or stages pass fewer values"
            )

    def _bind(self) -> None:
        """Bind the arrays that stay: state, gradients, scalars and the loss."""
        plan, held = self.plan, self.held
        read = {**self.sums, **self.scalars, **held.state, **held.gradients}
        changed = {s.result: held.state[s.name] for s in plan.state_of(held.rank)}
        written = {**changed, **held.gradients, plan.loss_output: self.loss}
        for graph in self.sessions:
            self.bind(graph, read, written, {*self._passed, *self._inputs})

    def rehearse(self) -> None:
        """Run all graphs of a step once on arbitrary values.

        The state must be loaded afterwards. All ranks must call this. Raises `UserError`.
        """
        tensors = [self._inputs[name] for name in self.batch]
        zeros = {t.name: np.zeros(t.local_shape(), dtype_of(t.dtype)) for t in tensors}
        self.losses(lambda _: 0, lambda _: zeros)
        self.run_update()

    def losses(
        self, seed: Callable[[int], int], batch: Callable[[int], Mapping[str, Array]]
    ) -> list[float]:
        """Run all forward and backward passes; returns the loss of each micro-batch.

        ``seed`` and ``batch`` return the seed and the inputs of a micro-batch. All ranks must call
        this. Raises `UserError`, which names the stage and the task.
        """
        losses = [math.nan] * self.plan.micro_batches
        last = self.stages.schedule.chunks - 1
        for task in self.stages.schedule.orders[self.stage]:
            try:
                self.run(task, seed, batch)
            except UserError as error:
                raise UserError(f"stage {self.stage}, task {task}: {error}") from None
            if task.work == "F" and task.chunk == last:
                losses[task.micro_batch] = float(self.loss.get())
        self.end_sends()
        root = self.stages.schedule.places[last] * math.prod(self.plan.plan.mesh)
        return self._waited(lambda: self._comm.bcast(losses, root))

    def run(
        self,
        task: Task,
        seed: Callable[[int], int],
        batch: Callable[[int], Mapping[str, Array]],
    ) -> None:
        """Run one task of this stage: receive its inputs, run its graph, send its results."""
        graph, micro = work_graph(task.work, task.chunk), task.micro_batch
        session = self.sessions.get(graph)
        if session is None:
            return  # such as the gradients of the inputs of the first chunk
        self._collect_sent()
        self.set("seed", seed(micro))
        read = [name for name in session.inputs if name in self._passed or name in self._inputs]
        for name in read:
            session.read(name, self._value(name, micro, batch).array)
        made = [name for name in session.outputs if name in self._passed]
        for name in made:
            passed = self.stages.passed[self._passed[name]]
            array = self._arrays.take(passed.shape, dtype_of(passed.dtype))
            self._values[name, micro] = _Value(array, self._readers[name] + 1)
            session.write(name, array)
        session.run()
        for name in made:
            self._send(name, micro)
        for name in (*read, *made):
            self._release(name, micro)

    def run_update(self) -> None:
        """Run the update of this stage, and pass on the new parameters that other stages read."""
        self.update.run()
        first = self._tag(len(self._passed), 0)
        shared = [
            (state, owner, reader, first + number)
            for number, state in enumerate(self.plan.state)
            for owner in [self.stages.stage_of(state.graph)]
            for reader in sorted({*map(self.stages.stage_of, state.read_by)} - {owner})
        ]
        for state, owner, reader, tag in shared:
            if owner == self.stage:
                self._send_to(reader, self.held.state[state.name], tag)
        for state, owner, reader, tag in shared:
            if reader == self.stage:
                self._receive(self.held.state[state.name], owner, tag)
        self.end_sends()

    def not_finite(self, graph: str) -> list[str]:
        """Return the results of a graph's last run that are not finite, in their order."""
        return [name for name, array in self.sessions[graph].results() if not all_finite(array)]

    def _value(self, name: str, micro: int, batch: Callable[[int], Mapping[str, Array]]) -> _Value:
        """Return a value that a graph reads, received or read from the batch on its first use."""
        if (name, micro) not in self._values:
            if name in self._inputs:
                self._feed(micro, batch(micro))
            else:
                passed = self.stages.passed[self._passed[name]]
                array = self._arrays.take(passed.shape, dtype_of(passed.dtype))
                self._values[name, micro] = _Value(array, self._readers[name])
                source = self.stages.stage_of(passed.graph)
                self._receive(array, source, self._tag(self._passed[name], micro))
        return self._values[name, micro]

    def _feed(self, micro: int, batch: Mapping[str, Array]) -> None:
        for name, part in batch.items():
            tensor = self._inputs[name]
            array = self._arrays.take(tensor.local_shape(), dtype_of(tensor.dtype))
            array.put(part)
            self._values[name, micro] = _Value(array, self._readers[name])

    def _send(self, name: str, micro: int) -> None:
        number = self._passed[name]
        passed, value = self.stages.passed[number], self._values[name, micro]
        for stage in sorted({*map(self.stages.stage_of, passed.read_by)} - {self.stage}):
            value.sends += 1
            self._send_to(stage, value.array, self._tag(number, micro), value)

    def _tag(self, number: int, micro: int) -> int:
        return number * self.plan.micro_batches + micro

    def _rank(self, stage: int) -> int:
        """Return the rank of a stage with this rank's place in the mesh."""
        return stage * math.prod(self.plan.plan.mesh) + self._place

    def _send_to(
        self, stage: int, array: PlacedArray, tag: int, value: _Value | None = None
    ) -> None:
        data = np.ascontiguousarray(array.get()).reshape(-1).view(np.uint8)
        self._sent.append((self._comm.Isend(data, self._rank(stage), tag), data, value))

    def _receive(self, array: PlacedArray, stage: int, tag: int) -> None:
        on_host = self.held.provider.device == "cpu"
        place = array.get() if on_host else np.empty(array.shape, array.dtype)
        data = place.reshape(-1).view(np.uint8)
        self._waited(lambda: self._comm.Recv(data, self._rank(stage), tag))
        array.put(place)

    def _release(self, name: str, micro: int) -> None:
        """Count a reader of a value that has run; the last one ends its life on this stage."""
        value = self._values[name, micro]
        value.readers -= 1
        if not value.readers:
            del self._values[name, micro]
            self._give_back(value)

    def _give_back(self, value: _Value) -> None:
        if not value.readers and not value.sends:
            self._arrays.give(value.array)

    def _collect_sent(self) -> None:
        """Take back the arrays of values that have been sent."""
        waiting = []
        for sent in self._sent:
            if not sent[0].Test():
                waiting.append(sent)
            elif sent[2] is not None:
                sent[2].sends -= 1
                self._give_back(sent[2])
        self._sent = waiting

    def end_sends(self) -> None:
        """Wait until all values have been sent."""
        for request, _, _ in self._sent:
            self._waited(request.Wait)
        self._collect_sent()

    def _waited(self, call: Callable[[], T]) -> T:
        """Return ``call()``, and count its time as waiting for other stages."""
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.waited_s += time.perf_counter() - start
