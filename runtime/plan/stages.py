"""The stages of a plan: their schedule, their graphs, and the values that pass between these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tensoropt.runtime.plan.entries import StagesEntry
from tensoropt.runtime.plan.graphs import UPDATE, ChunkGraph, chunk_graph, graph_name
from tensoropt.runtime.stages.execution import check_tasks, check_waits
from tensoropt.runtime.stages.schedule import Reads, Schedule
from tensoropt.runtime.support.errors import UserError

__all__ = ["Passed", "Stages"]


@dataclass(frozen=True)
class Passed:
    """A value that ``graph`` computes and the graphs ``read_by`` read.

    ``shape`` is of a rank's part, with None for sizes that only a run has.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    graph: str
    read_by: tuple[str, ...]

    @cached_property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """The shape if it is the same in all runs."""
        known = tuple(size for size in self.shape if size is not None)
        return known if len(known) == len(self.shape) else None


@dataclass(frozen=True)
class Stages:
    """The stages of a program, with the ``graphs`` of each.

    ``chunk_graphs`` are the graphs of all stages, without updates. Both are in an order in which
    they can run. In inference each stage has one graph.
    """

    schedule: Schedule
    graphs: Sequence[Sequence[str]]
    chunk_graphs: Sequence[str]
    passed: Sequence[Passed]

    @classmethod
    def of_entry(cls, entry: StagesEntry, micro_batches: int | None) -> Stages:
        """Return the stages of an entry of plan.json; raises :class:`UserError` for a bad one.

        ``micro_batches`` is the number of a training step, ``None`` for inference. The schedule is
        complete, and no stage waits forever.
        """
        places, count = entry["places"], len(entry["schedule"])
        schedule = Schedule.parse(places, micro_batches or 1, entry["schedule"])
        check_tasks(schedule, trains=micro_batches is not None)
        named = len(entry.get("devices", entry["schedule"]))
        if named != count:
            raise UserError(
                f"stages: devices: expected one for each stage of {count}, got: {named}"
            )
        if not 0 <= entry["fullest"] < count:
            raise UserError(
                f"stages: fullest: expected a stage of 0 to {count - 1}, got: {entry['fullest']}"
            )
        stage_of = {name: _stage(name, schedule) for name in entry["graphs"]}
        passed = [
            Passed(
                own["name"],
                own["dtype"],
                tuple(own["shape"]),
                own["graph"],
                tuple(own["read_by"]),
            )
            for own in entry["passed"]
        ]
        for own in passed:
            for name in (own.graph, *own.read_by):
                if name not in stage_of:
                    raise UserError(f"stages: '{own.name}': expected a graph of them, got: {name}")
        schedule = replace(schedule, reads=_reads(passed, schedule.chunks))
        check_waits(schedule)
        graphs = [[n for n in stage_of if stage_of[n] == stage] for stage in range(count)]
        for stage, own_graphs in enumerate(graphs):
            if micro_batches is None:
                if len(own_graphs) != 1:
                    listed = ", ".join(own_graphs) or "none"
                    raise UserError(f"stages: expected one graph of stage {stage}, got: {listed}")
            elif graph_name(UPDATE, stage) not in own_graphs:
                raise UserError(f"stages: graphs: expected {graph_name(UPDATE, stage)} among them")
        chunk_graphs = [name for name in stage_of if not name.startswith(UPDATE)]
        return cls(schedule, graphs, chunk_graphs, passed)

    def stage_of(self, graph: str) -> int:
        """Return the stage of a graph."""
        return self._stages[graph]

    @cached_property
    def _stages(self) -> Mapping[str, int]:
        return {graph: stage for stage, own in enumerate(self.graphs) for graph in own}


def _stage(name: str, schedule: Schedule) -> int:
    """Return the stage of a graph by its name; raises :class:`UserError` for another name."""
    graph = chunk_graph(name)
    known: Mapping[str, int] = {UPDATE: schedule.stages}
    if graph is None or graph.number >= known.get(graph.kind, schedule.chunks):
        raise UserError(f"stages: graphs: expected a graph of a chunk or a stage, got: {name}")
    return _place(graph, schedule)


def _reads(passed: Sequence[Passed], chunks: int) -> Reads:
    """Return the chunks that each chunk reads from.

    Values pass forward, or back in the backward pass: of two chunks the later one reads.
    """
    found: list[set[int]] = [set() for _ in range(chunks)]
    for own in passed:
        made = chunk_graph(own.graph)
        for read in map(chunk_graph, own.read_by):
            if made and read and UPDATE not in (made.kind, read.kind):
                first, last = sorted((made.number, read.number))
                found[last] |= {first} - {last}
    return tuple(tuple(sorted(own)) for own in found)


def _place(graph: ChunkGraph, schedule: Schedule) -> int:
    return graph.number if graph.kind == UPDATE else schedule.places[graph.number]
