"""Pipelines of a training step: its chunks, their schedule, and its time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.device import Device, Link
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.timeline import timeline_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunk_costs import StepCosts, chunk_costs
from tensoropt.compiler.stages.chunks import chunk_numbers
from tensoropt.compiler.stages.families import FAMILIES, generate
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.stages.execution import ChunkCost, Execution, execute
from tensoropt.runtime.stages.schedule import Schedule

__all__ = ["Pipeline", "pipeline_of", "pipelines_of"]


@dataclass(frozen=True)
class Pipeline:
    """A training step in stages, each on a mesh of the shape of ``point``.

    ``numbers`` has the chunk of each node that has one. ``execution`` leaves out the work that a
    stage does once per step, which ``time_s`` includes. ``memory_bytes`` and ``static_bytes`` are
    about the stage with the most memory.
    """

    point: FrontierPoint
    family: str
    numbers: Sequence[int | None]
    schedule: Schedule
    execution: Execution
    time_s: float
    memory_bytes: int
    static_bytes: int

    @property
    def stages(self) -> int:
        return self.schedule.stages

    @property
    def idle_share(self) -> float:
        """The share of the time in which a stage has nothing to do, on average."""
        idle_s = sum(map(self.execution.idle_s, range(self.stages)))
        return idle_s / (self.stages * self.execution.time_s) if self.execution.time_s else 0.0


def pipeline_of(point: FrontierPoint, stages: int, family: str) -> Pipeline:
    """Return the pipeline of a step with a schedule of a family.

    Raises :class:`UserError` for a step with fewer operations than chunks. Linear in the operands
    of the program, ``O(n log n)`` in the tasks of all stages.
    """
    (found,) = pipelines_of(point, stages, [family])
    return found


def pipelines_of(point: FrontierPoint, stages: int, families: Sequence[str]) -> list[Pipeline]:
    """Return a pipeline per family; those with equal numbers of chunks share their cuts."""
    link = _link(point.tables.device, stages, point.mesh)
    timeline = timeline_of(evaluator_of(point.tables), point.assignment)
    cuts: dict[int, tuple[Sequence[int | None], StepCosts]] = {}
    found = []
    for name in families:
        count = stages * FAMILIES[name].chunks
        if count not in cuts:
            numbers = chunk_numbers(point, timeline, count)
            cuts[count] = numbers, chunk_costs(point, timeline, numbers, count)
        found.append(_Maker(point, name, *cuts[count], stages, link).pipeline())
    return found


def _link(device: Device, stages: int, mesh: Sequence[int]) -> Link:
    """Return the link between equal ranks of neighbouring stages."""
    return device.axis_links(Mesh((stages, *mesh)))[0]


@dataclass(frozen=True)
class _Maker:
    point: FrontierPoint
    name: str
    numbers: Sequence[int | None]
    step: StepCosts
    stages: int
    link: Link

    def pipeline(self) -> Pipeline:
        family, chunks = FAMILIES[self.name], self.step.chunks
        places = family.place(self.stages, family.chunks)
        costs = [self._cost(number, places) for number in range(len(chunks))]
        schedule = generate(family, self.stages, self.point.tables.graph.micro_batches, costs)
        execution = execute(schedule, costs)
        time_s, memory_bytes, static_bytes = 0.0, 0, 0
        for stage in range(self.stages):
            own = [chunk for chunk, place in zip(chunks, places, strict=True) if place == stage]
            end_s = execution.ends_s[stage][-1] + sum(chunk.once_s for chunk in own)
            time_s = max(time_s, end_s)
            static = sum(chunk.static_bytes for chunk in own)
            most = static + execution.kept_bytes[stage] + self.step.working_bytes
            if most > memory_bytes:
                memory_bytes, static_bytes = most, static
        what = self.point, self.name, self.numbers, schedule, execution
        return Pipeline(*what, time_s, memory_bytes, static_bytes)

    def _cost(self, number: int, places: Sequence[int]) -> ChunkCost:
        own = self.step.chunks[number]
        last = number + 1 == len(places)
        sends = not last and places[number] != places[number + 1]
        sent_s = self.link.latency_s + own.sent_bytes / self.link.bandwidth_bytes_per_s
        times = own.forward_s, own.backward_s, own.weights_s, sent_s if sends else 0.0
        return ChunkCost(*times, own.kept_bytes, own.weights_bytes)
