"""Pipelines of a program: its chunks, their schedule, and its time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.device import Device, Link
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.bounds import early_chunks
from tensoropt.compiler.stages.chunk_costs import NodeTimes, StepCosts
from tensoropt.compiler.stages.chunks import Evenness, cuts_of
from tensoropt.compiler.stages.families import FAMILIES, STREAM, generate
from tensoropt.compiler.stages.order import order_of
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.stages.execution import ChunkCost, Execution, execute
from tensoropt.runtime.stages.schedule import Schedule

__all__ = ["Pipeline", "link_of", "pipeline_of", "pipelines_of"]


@dataclass(frozen=True)
class Pipeline:
    """A program in stages, each on a mesh of the shape of ``point``.

    ``cuts`` are the places of the forward pass at which chunks begin, a stage at most
    ``early_chunks`` before an even cut. ``execution`` has the ``costs`` of the chunks, and leaves
    out the work that a stage does once per step, which ``time_s`` includes. In a stream of inputs
    ``time_s`` is of one input, and results follow each other in ``interval_s``; a training step
    ends before the next one begins. ``stage_bytes`` is the memory of each stage,
    ``static_bytes_of`` the part that is static. ``sent_bytes`` pass from each chunk to the next,
    for each micro-batch or input.
    """

    point: FrontierPoint
    family: str
    cuts: Sequence[int]
    early_chunks: float
    schedule: Schedule
    costs: Sequence[ChunkCost]
    execution: Execution
    time_s: float
    interval_s: float
    stage_bytes: Sequence[int]
    static_bytes_of: Sequence[int]
    sent_bytes: Sequence[int]

    @property
    def numbers(self) -> list[int | None]:
        """The chunk of each node that has one."""
        found = order_of(self.point.tables.graph).chunks(self.cuts).tolist()
        return [None if number < 0 else number for number in found]

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
        return self.schedule.stages

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


def pipeline_of(point: FrontierPoint, stages: int, family: str) -> Pipeline:
    """Return the pipeline of a step with a schedule of a family, and chunks of equal time.

    Linear in the operands of the program, ``O(n log n)`` in the tasks of all stages.
    """
    return pipelines_of(point, stages, [family])[0]


def pipelines_of(point: FrontierPoint, stages: int, families: Sequence[str]) -> list[Pipeline]:
    """Return the pipelines of each family, which fit the step, one for each of its cuts."""
    link, times = link_of(point.tables.device, stages, point.mesh), NodeTimes(point)
    known: dict[tuple[int, Evenness], _Cut] = {}
    found: list[Pipeline] = []
    for name in families:
        count = stages * FAMILIES[name].chunks
        for evenness in _evenness(name, stages):
            key = count, evenness
            if key not in known:
                known[key] = _Cut.read(times, cuts_of(times, *key), stages)
            found.append(_Maker(point, name, known[key], stages, link).pipeline())
    return found


@dataclass(frozen=True)
class _Cut:
    """The places at which chunks begin, and their costs."""

    places: Sequence[int]
    step: StepCosts
    early_chunks: float

    @classmethod
    def read(cls, times: NodeTimes, places: Sequence[int], stages: int) -> _Cut:
        return cls(places, times.step(places), early_chunks(times.place_s[1], places, stages))


def _evenness(family: str, stages: int) -> Sequence[Evenness]:
    """Return the times that the cuts of a family make equal."""
    own = FAMILIES[family]
    if stages == 1 or own.between is not None or not (own.splits_weights or own.chunks == 1):
        return ("chunks",)
    return ("chunks", "ends" if own.splits_weights else "ends without W")


def link_of(device: Device, stages: int, mesh: Sequence[int]) -> Link:
    """Return the link between equal ranks of neighbouring stages."""
    return device.axis_links(Mesh((stages, *mesh)))[0]


@dataclass(frozen=True)
class _Maker:
    point: FrontierPoint
    name: str
    cut: _Cut
    stages: int
    link: Link

    def pipeline(self) -> Pipeline:
        family, chunks = FAMILIES[self.name], self.cut.step.chunks
        places = family.place(self.stages, family.chunks)
        costs = [self._cost(number, places) for number in range(len(chunks))]
        schedule = generate(family, self.stages, self.point.tables.graph.micro_batches, costs)
        execution = execute(schedule, costs)
        static, time_s = [0] * self.stages, 0.0
        for stage in range(self.stages):
            own = [chunk for chunk, place in zip(chunks, places, strict=True) if place == stage]
            end_s = execution.ends_s[stage][-1] + sum(chunk.once_s for chunk in own)
            time_s, static[stage] = max(time_s, end_s), sum(chunk.static_bytes for chunk in own)
        kept = zip(static, execution.kept_bytes, strict=True)
        sizes = [own + more + self.cut.step.working_bytes for own, more in kept]
        return Pipeline(
            self.point,
            self.name,
            self.cut.places,
            self.cut.early_chunks,
            schedule,
            costs,
            execution,
            time_s,
            time_s,
            sizes,
            static,
            [chunk.sent_bytes for chunk in chunks],
        )

    def _cost(self, number: int, places: Sequence[int]) -> ChunkCost:
        own = self.cut.step.chunks[number]
        last = number + 1 == len(places)
        sends = not last and places[number] != places[number + 1]
        sent_s = self.link.send_s(own.sent_bytes) if sends else 0.0
        times = own.forward_s, own.backward_s, own.weights_s, sent_s
        return ChunkCost(*times, own.kept_bytes, own.weights_bytes)
