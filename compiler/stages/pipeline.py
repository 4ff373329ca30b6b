"""Pipelines of a program: its chunks, their schedule, and its time and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tensoropt.compiler.program.evaluate import ProgramCost
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.branches import Branch, reads_of
from tensoropt.compiler.stages.chunk_costs import Costs
from tensoropt.compiler.stages.chunks import cuts_of, cuts_within
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import (
    BY_STAGES,
    FAMILIES,
    STREAM,
    Evenness,
    Family,
    generate,
)
from tensoropt.compiler.stages.order import order_of
from tensoropt.compiler.stages.orders import Orders
from tensoropt.runtime.stages.execution import ChunkCost, Execution, execute
from tensoropt.runtime.stages.schedule import Reads, Schedule, readers_of

__all__ = ["Pipeline", "pipeline_of", "pipelines_of"]


@dataclass(frozen=True)
class Pipeline:
    """A program in stages, each on a mesh of one shape.

    ``cuts`` are the places of the forward pass at which chunks begin. Tasks take the ``costs`` of
    the chunks; ``time_s`` includes the work that a stage does once per step. In a stream of inputs
    ``time_s`` is of one input, and results follow each other in ``interval_s``; a training step
    ends before the next one begins. ``stage_bytes`` is the memory of each stage,
    ``static_bytes_of`` the part that is static. ``sent_bytes`` pass from each chunk to one that
    reads from it, for each micro-batch or input. The stages hide ``hidden_s`` of their
    communication in a step, on average. Parallel ``branches`` begin at some of the cuts.
    Where they fork and join, a stage has more chunks.
    """

    devices: StageDevices
    family: str
    cuts: Sequence[int]
    orders: Orders
    costs: Sequence[ChunkCost]
    time_s: float
    interval_s: float
    stage_bytes: Sequence[int]
    static_bytes_of: Sequence[int]
    sent_bytes: Sequence[int]
    hidden_s: float = 0.0
    branches: Sequence[Branch] = ()

    @property
    def point(self) -> FrontierPoint:
        """The choice of strategies with all layers, on the device of the first stage."""
        return self.devices.first

    @cached_property
    def schedule(self) -> Schedule:
        """The tasks of each stage in their order."""
        return self.orders.schedule

    @cached_property
    def execution(self) -> Execution:
        """The times of all tasks."""
        return execute(self.schedule, self.costs)

    @property
    def numbers(self) -> list[int | None]:
        """The chunk of each node that has one."""
        found = order_of(self.point.tables.graph).chunks(self.cuts).tolist()
        return [None if number < 0 else number for number in found]

    @cached_property
    def shares(self) -> list[float]:
        """The share of the stages of each group in all work, by the times of its device."""
        groups = np.array([self.devices.groups[place] for place in self.orders.places])
        found = []
        for group, times in enumerate(self.devices.group_times):
            chunk_s = np.add.reduceat(times.place_s[1], [0, *self.cuts])
            found.append(float(chunk_s[groups == group].sum() / chunk_s.sum()))
        return found

    def mean_s(self, of: Callable[[ProgramCost], float]) -> float:
        """Return the mean time over all stages; ``of`` returns the time of all layers."""
        pairs = zip(self.shares, self.devices.points, strict=True)
        return sum(share * of(point.cost) for share, point in pairs) / self.stages

    @property
    def fits(self) -> bool:
        """False if a stage takes more memory than its device is known to have."""
        pairs = zip(self.stage_bytes, self.devices.limits_bytes, strict=True)
        return all(own <= most for own, most in pairs)

    @property
    def fullest(self) -> int:
        """The stage with the most memory."""
        return max(range(self.stages), key=lambda stage: self.stage_bytes[stage])

    @property
    def memory_bytes(self) -> int:
        """The memory of the fullest stage."""
        return max(self.stage_bytes)

    @property
    def static_bytes(self) -> int:
        """The static memory of the fullest stage."""
        return self.static_bytes_of[self.fullest]

    @property
    def stages(self) -> int:
        return self.orders.stages

    @property
    def is_stream(self) -> bool:
        """True in inference, where inputs follow each other through the stages."""
        return self.family == STREAM

    @property
    def idle_share(self) -> float:
        """The share of the time in which a stage has nothing to do, on average.

        In a stream it is of the time between results, while all stages have inputs.
        """
        end_s = self.execution.time_s
        busy_s = sum(end_s - self.execution.idle_s(stage) for stage in range(self.stages))
        whole_s = self.interval_s if self.is_stream else end_s
        return 1 - busy_s / (self.stages * whole_s) if whole_s else 0.0


def pipelines_of(devices: StageDevices, families: Sequence[str]) -> list[Pipeline]:
    """Return the pipelines of each family, which fit the step, one for each of its cuts.

    Some families can have chunks side by side for parallel branches of the program. Pipelines above
    the memory of a stage are followed by pipelines that fit it, if the family has any. Linear in
    the operands of the program, ``O(n log n)`` in the tasks of all stages.
    """
    known: dict[_Key, _Cut] = {}
    found: list[Pipeline] = []
    for name in families:
        family = FAMILIES[name]
        places = family.place(devices.stages, family.chunks)
        for own, evenness in _kinds(devices, family):
            key = places, evenness, bool(own), family.splits_weights
            if key not in known:
                cuts = cuts_of(devices, places, evenness, [branch.begin for branch in own])
                known[key] = _Cut.read(devices, places, cuts, own, splits=family.splits_weights)
            found.append(_pipeline(devices, name, known[key]))
            if family.fills and not found[-1].fits:
                found += _filled(found[-1], known[key])
        if family.chunks == 1 and not found[-1].fits:
            begin = cuts_within(devices, _in_flight(devices, name), found[-1].cuts)
            found += [] if begin is None else [pipeline_of(devices, name, begin)]
    return found


def _kinds(devices: StageDevices, family: Family) -> Iterator[tuple[Sequence[Branch], Evenness]]:
    """Yield the branches and the even times of each cut of a family, cuts without branches last."""
    if devices.stages == 1:
        yield [], "chunks"
        return
    if family.takes_branches:
        branches = devices.group_times[0].branches(devices.stages * family.chunks)
        for evenness in family.evenness if branches else ():
            if evenness not in BY_STAGES:
                yield branches, evenness
    for evenness in family.evenness:
        yield [], evenness


_Key = tuple[tuple[int, ...], Evenness, bool, bool]
"""The stages of chunks, the times that are even, and whether branches are cuts and gradients of
weights are tasks of their own."""


def _filled(pipeline: Pipeline, cut: _Cut) -> list[Pipeline]:
    """Return the pipeline that fills its stages with micro-batches, if each has room for one."""
    devices, places = pipeline.devices, pipeline.orders.places
    room: list[float] = []
    for stage, most in enumerate(devices.limits_bytes):
        own = [cost for cost, place in zip(pipeline.costs, places, strict=True) if place == stage]
        working = max(max(cost.working_bytes, cost.gradient_bytes) for cost in own)
        room.append(most - pipeline.static_bytes_of[stage] - working)
        if room[-1] < sum(max(cost.kept_bytes, cost.weights_bytes) for cost in own):
            return []
    return [_pipeline(devices, pipeline.family, cut, room)]


def pipeline_of(devices: StageDevices, family: str, cuts: Sequence[int]) -> Pipeline:
    """Return the pipeline of a family with a chain of chunks that begin at the places ``cuts``."""
    own = FAMILIES[family]
    places = own.place(devices.stages, own.chunks)
    cut = _Cut.read(devices, places, cuts, [], splits=own.splits_weights)
    return _pipeline(devices, family, cut)


def _in_flight(devices: StageDevices, name: str) -> list[int]:
    """Return the most micro-batches with activations on each stage, with a chunk per stage."""
    family, stages = FAMILIES[name], devices.stages
    batches = devices.first.tables.graph.micro_batches
    sizes = [(stage, stages, 1) for stage in range(stages)]
    return [min(batches, family.passes(*size), family.kept(*size)) for size in sizes]


@dataclass(frozen=True)
class _Cut:
    """The places of the forward pass at which chunks begin, and the costs of these.

    ``places`` has the stage of each chunk, and ``reads`` the chunks that it reads from.
    """

    begin: Sequence[int]
    places: tuple[int, ...]
    chunks: Sequence[Costs]
    branches: Sequence[Branch]
    reads: Reads

    @classmethod
    def read(
        cls,
        devices: StageDevices,
        places: Sequence[int],
        begin: Sequence[int],
        branches: Sequence[Branch],
        *,
        splits: bool,
    ) -> _Cut:
        """Return the cut at ``begin``, where each chunk has a stage of ``places``.

        A chunk in which a branch forks or joins is two chunks of its stage, as other stages need
        not wait for both. ``splits``: gradients of weights are tasks of their own.
        """
        order = devices.group_times[0].order
        ends = {place for own in branches for place in (own.fork, own.join)}
        cuts = sorted({*begin, *ends} - {0, len(order.forward)})
        own = tuple(places[at] for at in np.searchsorted(begin, [0, *cuts], "right"))
        begins = [branch.begin for branch in branches]
        costs = devices.costs(cuts, own, begins, splits=splits)
        return cls(cuts, own, costs, branches, reads_of(order, cuts, begins))


def _pipeline(
    devices: StageDevices, name: str, cut: _Cut, room_bytes: Sequence[float] | None = None
) -> Pipeline:
    family, chunks, stages, places = FAMILIES[name], cut.chunks, devices.stages, cut.places
    readers = readers_of(cut.reads)
    costs = [
        ChunkCost(
            own.forward_s,
            own.backward_s,
            own.weights_s,
            devices.send_s(own.sent_bytes, places[number], [places[r] for r in readers[number]]),
            own.kept_bytes,
            own.weights_bytes,
            own.working_bytes,
            own.gradient_bytes,
        )
        for number, own in enumerate(chunks)
    ]
    micro_batches = devices.first.tables.graph.micro_batches
    orders = generate(family, stages, micro_batches, costs, room_bytes, (places, cut.reads))
    ends_s, peak_bytes = orders.run(costs)
    sizes, static, time_s = [0] * stages, [0] * stages, 0.0
    for stage in range(stages):
        own = [chunk for chunk, place in zip(chunks, places, strict=True) if place == stage]
        end_s = ends_s[stage] + sum(chunk.once_s for chunk in own)
        time_s, static[stage] = max(time_s, end_s), sum(chunk.static_bytes for chunk in own)
        sizes[stage] = static[stage] + peak_bytes[stage]
    return Pipeline(
        devices,
        name,
        cut.begin,
        orders,
        costs,
        time_s,
        time_s,
        sizes,
        static,
        [chunk.sent_bytes for chunk in chunks],
        sum(chunk.hidden_s for chunk in chunks) / stages,
        cut.branches,
    )
