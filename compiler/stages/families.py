"""Families of schedules, generated for the costs of the chunks.

A stage that is free runs a backward pass if one is ready, else a forward pass if its limits allow
it, else the gradients of weights that backward passes left out. If such gradients can fill bubbles
later, forward passes lead: they run before the backward passes of up to a micro-batch per stage
before theirs, so that work for all stages arrives early. Families differ in the places of their
chunks, in these limits, and in whether gradients of weights are tasks of their own:

- GPipe (Huang et al., 2019) runs all forward passes first.
- 1F1B (PipeDream-Flush, Narayanan et al., 2021) keeps one micro-batch for each stage that follows,
  and its own. Interleaved (Megatron-LM, 2021) does so with several chunks per stage.
- ZB-H1 and ZB-H2 (Qi et al., 2023) fill bubbles with gradients of weights, in the memory of 1F1B or
  in twice the memory.
- ZB-V, V-Half and V-Min (Qi et al., 2024) place the second half of the chunks in the opposite
  order. They take the memory of 1F1B, half, and a third of it; the latter two repeat a pattern, as
  V-Two-Thirds does in between.
  ZB-V2 is to ZB-V as ZB-H2 to ZB-H1: with twice the memory, unequal passes leave smaller bubbles.

ZB-H2 and ZB-V2 also fill the memory of stages with micro-batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tensoropt.compiler.stages.patterns import Moments, repeat
from tensoropt.runtime.stages.execution import ChunkCost
from tensoropt.runtime.stages.schedule import Schedule, Task

__all__ = ["FAMILIES", "STREAM", "Evenness", "Family", "fitting", "generate"]

Evenness = Literal["chunks", "stages", "ends", "ends without W"]
"""The times that a cut makes about equal: of the chunks, of the stages with two chunks each, or the
ends of chunks that each are a stage. A stage begins after the forward pass of the chunks before,
and the backward pass through these follows after its last task; gradients of weights, if they are
tasks, fill that time."""


Limit = Callable[[int, int, int], int]
"""A number of chunks, by stage, stages and chunks per stage."""


def _unlimited(_stage: int, _stages: int, _chunks: int) -> int:
    return 1 << 60


def _none(_stage: int, _stages: int, _chunks: int) -> int:
    return 0


def _one_per_stage(_stage: int, stages: int, _chunks: int) -> int:
    return stages


def _line(stages: int, chunks: int) -> tuple[int, ...]:
    """Place the chunks round the stages, each turn in the same direction."""
    return tuple(range(stages)) * chunks


def _zigzag(stages: int, chunks: int) -> tuple[int, ...]:
    """Place the chunks along the stages and back again."""
    turns = (range(stages)[:: -1 if turn % 2 else 1] for turn in range(chunks))
    return tuple(stage for turn in turns for stage in turn)


@dataclass(frozen=True)
class Family:
    """A family of schedules.

    ``passes`` limits the micro-batches that have passed a chunk forward but not backward, summed
    over the chunks of a stage; ``kept`` limits those with activations. A forward pass
    may run before a backward pass of less than ``lead`` micro-batches before it. ``in_turns``
    lets passes run in groups of one micro-batch per stage, chunk by chunk. ``between`` makes the
    schedule repeat a pattern. If a schedule of a family that ``fills`` does not fit, there is one
    for the memory of the stages. There is a schedule for each kind of cut in ``evenness``.
    """

    passes: Limit = _unlimited
    kept: Limit = _unlimited
    chunks: int = 1
    place: Callable[[int, int], tuple[int, ...]] = _line
    splits_weights: bool = False
    lead: Limit = _none
    in_turns: bool = False
    between: Moments | None = None
    fills: bool = False
    evenness: Sequence[Evenness] = ("chunks",)

    def with_chunks(self, chunks: int) -> Family:
        """Return the family with another number of chunks per stage."""
        return replace(self, chunks=chunks)


FAMILIES: dict[str, Family] = {
    "gpipe": Family(lead=_unlimited, evenness=("chunks", "ends without W")),
    "1f1b": Family(
        passes=lambda stage, stages, _: stages - stage, evenness=("chunks", "ends without W")
    ),
    "interleaved": Family(
        passes=lambda stage, stages, chunks: 2 * (stages - stage - 1) + (chunks - 1) * stages + 1,
        chunks=2,
        lead=_unlimited,
        in_turns=True,
        evenness=("stages",),
    ),
    "zb-h1": Family(
        passes=lambda stage, stages, _: stages - stage,
        kept=lambda _, stages, __: stages,
        splits_weights=True,
        lead=_one_per_stage,
        evenness=("chunks", "ends"),
    ),
    "zb-h2": Family(
        passes=lambda stage, stages, _: 2 * (stages - stage) - 1,
        kept=lambda _, stages, __: 2 * stages - 1,
        splits_weights=True,
        lead=_one_per_stage,
        fills=True,
        evenness=("chunks", "ends"),
    ),
    "zb-v": Family(
        kept=lambda _, stages, __: 2 * stages,
        chunks=2,
        place=_zigzag,
        splits_weights=True,
        lead=_one_per_stage,
        evenness=("chunks", "ends"),
    ),
    "zb-v2": Family(
        kept=lambda _, stages, __: 4 * stages,
        chunks=2,
        place=_zigzag,
        splits_weights=True,
        lead=_one_per_stage,
        fills=True,
        evenness=("stages", "ends"),
    ),
    "v-two-thirds": Family(chunks=2, place=_zigzag, splits_weights=True, between=(1, 3, 1, 3)),
    "v-half": Family(chunks=2, place=_zigzag, splits_weights=True, between=(1, 2, 1, 2)),
    "v-min": Family(chunks=2, place=_zigzag, splits_weights=True, between=(1, 1, 1, 1)),
}
"""The families by name."""

STREAM = "stream"
"""The schedule of inference: each input passes through the stages, in order."""


def fitting(families: Mapping[str, Family], stages: int, most_chunks: int) -> list[str]:
    """Return the families that have at most ``most_chunks`` on all stages together."""
    return [name for name, own in families.items() if stages * own.chunks <= most_chunks]


def generate(
    family: Family,
    stages: int,
    micro_batches: int,
    costs: Sequence[ChunkCost] | None = None,
    room_bytes: Sequence[float] | None = None,
) -> Schedule:
    """Return the schedule of a family for chunks with ``costs``, of one second each by default.

    There are ``family.chunks`` chunks per stage. With ``room_bytes`` a stage keeps activations of
    that size, instead of ``family.kept`` chunks. Each stage has room for one micro-batch.
    ``O(n log n)`` in the tasks.
    """
    places = family.place(stages, family.chunks)
    if family.between is not None:
        return repeat(places, micro_batches, family.between)
    own = costs or [ChunkCost()] * len(places)
    if room_bytes is None:
        room = [float(family.kept(stage, stages, family.chunks)) for stage in range(stages)]
        sizes = [(1.0, 1.0)] * len(places)
    else:
        room = [*room_bytes]
        sizes = [(float(max(c.kept_bytes, c.weights_bytes)), float(c.weights_bytes)) for c in own]
    return _Generator(family, places, micro_batches, own, room, sizes).run()


@dataclass
class _Stage:
    """A stage while a schedule is generated.

    ``kept`` is the size of the activations that it has, at most ``room``. A forward pass leads by
    less than ``lead`` micro-batches. ``forward`` and ``backward`` are heaps of passes with an input
    that has arrived, by priority.
    """

    number: int
    last_chunk: int
    room: float
    lead: int
    passes: int = 0
    kept: float = 0.0
    free_s: float = 0.0
    order: list[Task] = field(default_factory=list)
    forward: list[tuple[tuple[int, int, int], Task]] = field(default_factory=list)
    backward: list[tuple[tuple[int, int, int], Task]] = field(default_factory=list)
    weights: list[Task] = field(default_factory=list)
    turns: list[Task] = field(default_factory=list)  # forward passes still to come, last first


class _Generator:
    """Generates one schedule.

    ``sizes`` has the sizes of the activations of each chunk, before and after its backward pass.
    ``room`` limits their sum on each stage.
    """

    def __init__(
        self,
        family: Family,
        places: tuple[int, ...],
        micro_batches: int,
        costs: Sequence[ChunkCost],
        room: Sequence[float],
        sizes: Sequence[tuple[float, float]],
    ) -> None:
        self.family, self.places, self.costs, self.sizes = family, places, costs, sizes
        self.micro_batches, self.last = micro_batches, len(places) - 1
        deepest = {place: chunk for chunk, place in enumerate(places)}
        size = len(room), family.chunks
        self.stages = [
            _Stage(number, deepest[number], own, family.lead(number, *size))
            for number, own in enumerate(room)
        ]
        if family.in_turns:
            for stage in self.stages:
                own = [c for c, place in enumerate(places) if place == stage.number]
                tasks = [Task("F", m, c) for c in own for m in range(micro_batches)]
                stage.turns = sorted(tasks, key=self._priority, reverse=True)
        self.events: list[tuple[float, int, int, Task | None]] = []
        self.count = 0

    def run(self) -> Schedule:
        for micro_batch in range(self.micro_batches):
            self._arrive(0.0, Task("F", micro_batch, 0))
        while self.events:
            now_s, _, number, _ = self.events[0]
            stages = set()
            while self.events and self.events[0][0] <= now_s:
                _, _, number, task = heapq.heappop(self.events)
                stages.add(number)
                if task is not None:
                    stage = self.stages[number]
                    heap = stage.forward if task.work == "F" else stage.backward
                    heapq.heappush(heap, (self._priority(task), task))
            for number in sorted(stages):
                self._continue(self.stages[number], now_s)
        orders = tuple(tuple(stage.order) for stage in self.stages)
        return Schedule(self.places, self.micro_batches, orders)

    def _priority(self, task: Task) -> tuple[int, int, int]:
        """Return the priority of a pass: earlier micro-batches, and of these the deepest chunk."""
        work, micro_batch, chunk = task
        if not self.family.in_turns:
            return (micro_batch, -chunk, 0)
        turn = micro_batch // len(self.stages)
        return (turn, chunk if work == "F" else -chunk, micro_batch)

    def _arrive(self, time_s: float, task: Task) -> None:
        self._wake(time_s, self.places[task.chunk], task)

    def _wake(self, time_s: float, stage: int, task: Task | None = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_s, self.count, stage, task))

    def _continue(self, stage: _Stage, now_s: float) -> None:
        """Start the next task of a stage that is free."""
        if stage.free_s > now_s:
            return
        task = self._next(stage)
        if task is None:
            return
        split = self.family.splits_weights
        stage.free_s = end_s = now_s + self.costs[task.chunk].time_s(task, splits_weights=split)
        stage.order.append(task)
        self._wake(end_s, stage.number)
        work, micro_batch, chunk = task
        early, late = self.sizes[chunk]
        if work == "F":
            stage.passes += 1
            stage.kept += early
            follows = (
                Task("F", micro_batch, chunk + 1) if chunk < self.last else Task("B", *task[1:])
            )
            self._arrive(end_s + (self.costs[chunk].sent_s if chunk < self.last else 0.0), follows)
        elif work == "B":
            stage.passes -= 1
            if split:
                stage.weights.append(Task("W", micro_batch, chunk))
                stage.kept -= early - late
            else:
                stage.kept -= early
            if chunk:
                follows = Task("B", micro_batch, chunk - 1)
                self._arrive(end_s + self.costs[chunk - 1].sent_s, follows)
        else:
            stage.kept -= late

    def _next(self, stage: _Stage) -> Task | None:
        forward, ready = self._forward(stage), stage.backward
        may_lead = forward and ready and forward.micro_batch - ready[0][1].micro_batch < stage.lead
        if forward is not None and (may_lead or not ready):
            heapq.heappop(stage.forward)
            if stage.turns:
                stage.turns.pop()
            return forward
        if stage.backward:
            return heapq.heappop(stage.backward)[1]
        return stage.weights.pop(0) if stage.weights else None

    def _forward(self, stage: _Stage) -> Task | None:
        """Return the forward pass that may run, ``None`` if none has arrived or a limit forbids it.

        A pass through an earlier chunk leaves room for a pass through the last one, without which
        no backward pass would come.
        """
        if not stage.forward:
            return None
        task = stage.forward[0][1]
        if stage.turns and task != stage.turns[-1]:
            return None
        own, last = self.sizes[task.chunk][0], self.sizes[stage.last_chunk][0]
        needed = own if task.chunk == stage.last_chunk else own + last
        passes = self.family.passes(stage.number, len(self.stages), self.family.chunks)
        return task if stage.passes < passes and stage.kept + needed <= stage.room else None
