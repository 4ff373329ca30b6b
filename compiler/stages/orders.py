"""The orders of the tasks of stages as numbers, which native code makes and runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.compiler.stages._schedules import Numbers, Step, generate, run
from tensoropt.runtime.stages.execution import ChunkCost
from tensoropt.runtime.stages.schedule import WORKS, Reads, Schedule, Task

__all__ = ["Orders"]


@dataclass(frozen=True)
class Orders:
    """The tasks of each stage in their order; a search makes many, and shows the tasks of few.

    The task of work ``w`` of micro-batch ``m`` through chunk ``c`` is the number
    ``(w * micro_batches + m) * chunks + c``.
    """

    places: tuple[int, ...]
    micro_batches: int
    splits_weights: bool
    reads: Reads
    _numbers: Numbers

    def __reduce__(self) -> tuple[Callable[[Schedule], Orders], tuple[Schedule]]:
        return Orders.read, (self.schedule,)

    @classmethod
    def read(cls, schedule: Schedule) -> Orders:
        """Return the orders of a schedule."""
        works, batches = {work: n for n, work in enumerate(WORKS)}, schedule.micro_batches
        chunks = schedule.chunks
        numbers = [
            [(works[task.work] * batches + task.micro_batch) * chunks + task.chunk for task in own]
            for own in schedule.orders
        ]
        split = schedule.splits_weights
        return cls(schedule.places, batches, split, schedule.reads, Numbers(numbers))

    @classmethod
    def generate(
        cls,
        places: tuple[int, ...],
        micro_batches: int,
        reads: Reads,
        costs: Sequence[ChunkCost],
        limits: tuple[Sequence[int], Sequence[int], Sequence[float]],
        sizes: tuple[Sequence[int], Sequence[float], Sequence[float]],
        *,
        splits_weights: bool,
        in_turns: bool,
    ) -> Orders:
        """Return the orders of stages that start a task whenever they are free and one is ready.

        ``limits`` has a number per stage: the most chunks that have passed forward but not
        backward, the lead of forward passes in micro-batches, and the most activations. ``sizes``
        has numbers per chunk: 1 if it counts in the first limit, else 0, and its activations before
        and after its backward pass. ``O(n log n)`` in the tasks.
        """
        step = _step(places, micro_batches, reads, costs, splits_weights)
        numbers = generate(step, in_turns, *limits, *sizes)
        return cls(places, micro_batches, splits_weights, reads, numbers)

    @property
    def stages(self) -> int:
        return max(self.places) + 1

    @property
    def schedule(self) -> Schedule:
        """The schedule with these orders."""
        batches, chunks = self.micro_batches, len(self.places)
        tasks = [
            Task(work, batch, chunk)
            for work in WORKS
            for batch in range(batches)
            for chunk in range(chunks)
        ]
        orders = (tuple(tasks[number] for number in own) for own in self._numbers.by_stage)
        return Schedule(self.places, batches, tuple(orders), self.reads)

    def run(self, costs: Sequence[ChunkCost]) -> tuple[list[float], list[int]]:
        """Return the end of the last task of each stage, and the most bytes while its tasks run.

        They are the times and the bytes of an ``Execution`` of the schedule. Linear in the tasks.
        """
        split = self.splits_weights
        step = _step(self.places, self.micro_batches, self.reads, costs, split)
        return run(step, self._numbers)


def _step(
    places: Sequence[int],
    micro_batches: int,
    reads: Reads,
    costs: Sequence[ChunkCost],
    splits_weights: bool,
) -> Step:
    times = [(own.forward_s, own.backward_s, own.weights_s, own.sent_s) for own in costs]
    sizes = [
        (own.kept_bytes, own.weights_bytes, own.working_bytes, own.gradient_bytes) for own in costs
    ]
    stages = max(places) + 1
    arrays = np.array(times, np.float64), np.array(sizes, np.int64)
    return Step(*arrays, places, reads, stages, micro_batches, splits_weights)
