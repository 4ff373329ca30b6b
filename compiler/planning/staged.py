"""Frontiers of training steps in stages, from searches of the mesh of one stage.

A step on the devices of one stage, with all layers, is searched for each number of stages and of
micro-batches. Each of its points is a choice of strategies, from which pipelines with the schedules
of all families follow. A pipeline with ``p`` stages takes at least the ``p``-th part of the time
that a stage would need for all layers, so the searches bound the time of all pipelines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from tensoropt.compiler.planning.memory_limit import nothing_fits
from tensoropt.compiler.planning.request import AUTO, Request
from tensoropt.compiler.search.frontier.points import least_process_bytes
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    StepPoint,
    undominated,
)
from tensoropt.compiler.search.frontier.steps import Graphs
from tensoropt.compiler.stages.families import FAMILIES
from tensoropt.compiler.stages.pipeline import Pipeline, pipelines_of
from tensoropt.compiler.support.errors import UserError

__all__ = ["StagedPoint", "staged_frontier"]

LEAST_S = 3.0
"""Least time of the search of one number of stages and of micro-batches."""

Search = Callable[[Graphs, Request], FrontierResult]


@dataclass(frozen=True)
class StagedPoint(StepPoint):
    """A point of a training step in stages; its figures are about the fullest stage."""

    pipeline: Pipeline | None = None
    capacity_bytes: int | None = None

    @property
    def _pipeline(self) -> Pipeline:
        assert self.pipeline is not None
        return self.pipeline

    @property
    def stages(self) -> int:
        return self._pipeline.stages

    @property
    def schedule(self) -> str:
        """The family of its schedule."""
        return self._pipeline.family

    @property
    def time_s(self) -> float:
        return self._pipeline.time_s

    @property
    def compute_s(self) -> float:
        """The time of computation of a stage, on average."""
        return self.cost.compute_s / self.stages

    @property
    def communication_s(self) -> float:
        """The time of communication within a stage, on average."""
        return self.cost.communication_s / self.stages

    @property
    def hidden_s(self) -> float:
        return self.cost.hidden_s / self.stages

    @property
    def memory_bytes(self) -> int:
        return self._pipeline.memory_bytes

    @property
    def static_bytes(self) -> int:
        return self._pipeline.static_bytes

    @property
    def transient_bytes(self) -> int:
        return self.memory_bytes - self.static_bytes

    @cached_property
    def process_bytes(self) -> int:
        """The memory of the process of a rank; tensors aside, the same as with all layers."""
        whole = self._pipeline.point
        return self.memory_bytes + whole.process_bytes - whole.memory_bytes

    @property
    def is_above_capacity(self) -> bool:
        return self.capacity_bytes is not None and self.process_bytes > self.capacity_bytes


def staged_frontier(
    graphs: Graphs, request: Request, search: Search, total_s: float | None
) -> FrontierResult:
    """Return the points of all pipelines that ``request`` asks for, none dominated.

    ``search`` returns the frontier of some of the graphs; all searches together take
    ``total_s``, if given. The bound is one of the least time.
    Raises :class:`UserError` if nothing fits the memory limit, and for a single number of stages
    that the step cannot be cut into.
    """
    cases = [*_cases(graphs, request)]
    limit_s = None if total_s is None else max(total_s / len(cases), LEAST_S)
    points: list[FrontierPoint] = []
    least_s, results = math.inf, list[FrontierResult]()
    for stages, micro_batches in cases:
        own = replace(
            request,
            stages=stages,
            schedule=None,
            memory=None if stages > 1 else request.memory,
            search_time=limit_s,
        )
        kept = {
            way: graph
            for way, graph in graphs.items()
            if stages == 1 or way.micro_batches == micro_batches
        }
        found = search(kept, own)
        results.append(found)
        least_s = min(least_s, _least_s(found) / stages)
        points += found.points if stages == 1 else _staged(found, stages, request)
    fits = [point for point in points if request.fits(point.process_bytes)]
    if not fits:
        raise nothing_fits(request, request.memory_bytes or 0, least_process_bytes(points))
    kept_points = undominated(fits)
    return FrontierResult(
        points=kept_points,
        epsilon=None,
        time_epsilon=kept_points[0].time_s / least_s - 1 if least_s > 0 else None,
        found=len(points),
        interrupted=any(own.interrupted for own in results),
        stopped=next((own.stopped for own in results if own.stopped is not None), None),
        time_limit_s=total_s,
    )


def _cases(graphs: Graphs, request: Request) -> Iterator[tuple[int, int]]:
    """Yield the numbers of stages and of micro-batches to search; 1 stage has all of the latter."""
    numbers = sorted({way.micro_batches for way in graphs})
    for stages in _counts(request):
        if stages == 1:
            yield 1, 0
        else:
            enough = [number for number in numbers if number >= stages]
            yield from ((stages, number) for number in enough or numbers[-1:])


def _counts(request: Request) -> Sequence[int]:
    if request.stages != AUTO:
        return [int(request.stages)]
    return [n for n in range(1, request.devices + 1) if request.devices % n == 0]


def _least_s(found: FrontierResult) -> float:
    """Return a lower bound on the time of a step on one stage."""
    epsilon = found.time_epsilon if found.epsilon is None else found.epsilon
    return 0.0 if epsilon is None else found.points[0].time_s / (1 + epsilon)


def _staged(found: FrontierResult, stages: int, request: Request) -> Iterator[FrontierPoint]:
    """Yield the points of all pipelines of the points of one stage."""
    families = [request.schedule] if request.schedule is not None else [*FAMILIES]
    names = [own.name for own in fields(StepPoint)]
    for point in found.points:
        given = {name: getattr(point, name) for name in names}
        for pipeline in _pipelines(point, stages, families, request):
            yield StagedPoint(**given, pipeline=pipeline, capacity_bytes=request.capacity_bytes)


def _pipelines(
    point: FrontierPoint, stages: int, families: Sequence[str], request: Request
) -> list[Pipeline]:
    """Return the pipelines of a point, without families of more chunks than it can be cut into.

    Raises :class:`UserError` if no family is left of those that were asked for.
    """
    made: list[Pipeline] = []
    refused: UserError | None = None
    for chunks in sorted({FAMILIES[name].chunks for name in families}):
        own = [name for name in families if FAMILIES[name].chunks == chunks]
        try:
            made += pipelines_of(point, stages, own)
        except UserError as error:
            refused = refused or error
    if refused is not None and not made and request.stages != AUTO:
        raise refused
    return made
