"""Frontiers of programs in stages, from searches of the mesh of one stage.

A training step, or the program of inference, is searched on the devices of one stage, with all
layers, for each number of stages and of micro-batches. Each of its points is a choice of
strategies, from which pipelines with the schedules of all families follow. With ``p`` stages, the
slowest takes at least the ``p``-th part of the time that one stage would need for all layers, so
the searches bound the times of all pipelines. On unlike devices the same points are also steps on
replicas.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tensoropt.compiler.planning.memory_limit import nothing_fits
from tensoropt.compiler.planning.replicas import (
    ReplicasBound,
    can_replicate,
    joins_batches,
    least_sums_s,
    replicated,
)
from tensoropt.compiler.planning.request import AUTO, THROUGHPUT, Request
from tensoropt.compiler.planning.staged_bounds import Bound, UnlikeBound, time_epsilon
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.frontier.points import (
    Overfull,
    least_process_bytes,
    micro_batches_of,
    recompute_of,
)
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult, undominated
from tensoropt.compiler.search.frontier.steps import Graphs
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import FAMILIES, STREAM, Family, fitting
from tensoropt.compiler.stages.order import order_of
from tensoropt.compiler.stages.pipeline import Pipeline, pipelines_of
from tensoropt.compiler.stages.stream import stream_of
from tensoropt.compiler.support.collection import without_collection
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import INFERENCE

__all__ = ["StagedPoint", "staged_frontier"]

LEAST_S = 3.0
"""Least time of the search of one number of stages and of micro-batches."""

Search = Callable[[Graphs, Request], FrontierResult]


@dataclass(frozen=True)
class StagedPoint(FrontierPoint):
    """A point of a program in stages; its figures are about the fullest stage.

    ``capacities`` has the memory of the device of each stage, ``None`` where no limit is known.
    ``by_interval``: its time is the interval between results of a stream of inputs.
    """

    pipeline: Pipeline | None = None
    capacities: Sequence[int | None] = ()
    by_interval: bool = False

    @property
    def _pipeline(self) -> Pipeline:
        assert self.pipeline is not None
        return self.pipeline

    @property
    def stage_devices(self) -> list[str]:
        """The name of the device of each stage, if these are unlike; else none."""
        devices = self._pipeline.devices
        return [own.name for own in devices.devices] if devices.are_unlike else []

    @property
    def recompute(self) -> str | None:
        """The recompute policy of a training step."""
        return recompute_of(self._pipeline.point)

    @property
    def micro_batches(self) -> int | None:
        """The number of micro-batches of a training step."""
        return micro_batches_of(self._pipeline.point)

    @property
    def stages(self) -> int:
        return self._pipeline.stages

    @property
    def schedule(self) -> str:
        """The family of its schedule."""
        return self._pipeline.family

    @property
    def time_s(self) -> float:
        return self.interval_s if self.by_interval else self.latency_s

    @property
    def latency_s(self) -> float:
        """The time from an input to its result, or of a training step."""
        return self._pipeline.time_s

    @property
    def interval_s(self) -> float:
        """The time between results of a stream of inputs."""
        return self._pipeline.interval_s

    @property
    def compute_s(self) -> float:
        """The time of computation of a stage, on average."""
        return self._pipeline.mean_s(lambda cost: cost.compute_s)

    @property
    def communication_s(self) -> float:
        """The time of communication within a stage, on average."""
        return self._pipeline.mean_s(lambda cost: cost.communication_s)

    @property
    def hidden_s(self) -> float:
        return self._pipeline.hidden_s

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
        """The memory of the process of a rank of the fullest stage."""
        return self.memory_bytes + self._pipeline.devices.rest_bytes

    @property
    def overfull(self) -> Overfull | None:
        """The process of the stage that is furthest above the memory of its device, if any is."""
        devices = self._pipeline.devices
        rows = zip(self._pipeline.stage_bytes, devices.devices, self.capacities, strict=True)
        return Overfull.most(
            Overfull(device.name, size + devices.rest_bytes, most)
            for size, device, most in rows
            if most is not None and size + devices.rest_bytes > most
        )


def staged_frontier(
    graphs: Graphs, request: Request, search: Search, total_s: float | None
) -> FrontierResult:
    """Return the points of all pipelines and replicas that ``request`` asks for, none dominated.

    ``search`` returns the frontier of some of the graphs. The searches of all pipelines and
    replicas together take ``total_s``, if given, and so does the search of one mesh. The bound is
    one of the least time. Ctrl-C ends all searches. Raises :class:`UserError` if nothing fits the
    memory limit, and for a given number of stages that the step cannot be cut into.
    """
    cases = [*_cases(graphs, request)]
    left_s = total_s
    searched = _Searched(request)
    for number, case in enumerate(cases):
        stages = case.stages
        limit_s, begun = total_s, (time.monotonic(), time.process_time())
        if left_s is not None and stages > 1:
            more = sum(own.stages > 1 for own in cases[number:])
            limit_s = max(left_s / more, LEAST_S)
        own = replace(
            request,
            device=case.device,
            stages=stages,
            batches=None,
            schedule=None,
            memory=None if stages > 1 else request.memory,
            overlap="off" if request.groups and stages > 1 else request.overlap,
            search_time=limit_s,
        )
        kept = {
            way: graph for way, graph in graphs.items() if way.micro_batches in case.micro_batches
        }
        found = search(kept, own)
        if left_s is not None and stages > 1:
            # On a busy machine a search takes longer than its time of the processor.
            left_s -= min(time.monotonic() - begun[0], time.process_time() - begun[1])
        with without_collection():
            searched.add(case, own, next(iter(kept.values())), found)
        if found.interrupted:
            break
    return searched.result(total_s, is_whole=len(searched.results) == len(cases))


class _Searched:
    """The searches so far: the points of their pipelines and replicas, and the bounds of these."""

    def __init__(self, request: Request) -> None:
        self.request, self.spread = request, _Spread(request)
        self.points: list[FrontierPoint] = []
        self.results: list[FrontierResult] = []
        self.bounds: list[Bound | UnlikeBound | ReplicasBound] = []
        # By the number of replicas and of micro-batches, and by the device.
        self.of_devices: dict[tuple[int, int], dict[str, FrontierResult]] = {}

    def add(self, case: _Case, own: Request, graph: Graph, found: FrontierResult) -> None:
        """Add the search of a case, with the request for it and its first graph."""
        request, stages = self.request, case.stages
        self.results.append(found)
        made = [*_pipelines(found, case, self.spread)]
        self.points += found.points if stages == 1 else [_point(one, request) for one in made]
        if case.replicates:
            self.points += self._on_replicas(found, graph, stages)
            key = stages, graph.micro_batches
            self.of_devices.setdefault(key, {})[case.device] = found
        if not request.groups or stages == 1:
            self.bounds.append(Bound(found, made, own, graph))
        elif case.families and case.device == request.groups[0].name:
            # One bound is about the searches of all groups.
            self.bounds.append(UnlikeBound(request, graph, stages, case.chunks))

    def _on_replicas(
        self, found: FrontierResult, graph: Graph, replicas: int
    ) -> Iterator[FrontierPoint]:
        batches = self.request.batches or graph.micro_batches
        for each in self.spread.replicas(found, replicas):
            if graph.trains or joins_batches(each[0]):
                yield replicated(each, batches, self.spread.between)

    def result(self, total_s: float | None, *, is_whole: bool) -> FrontierResult:
        """Return the result; it has a bound if all searches ran (``is_whole``)."""
        request, points, results = self.request, self.points, self.results
        fits = [point for point in points if request.fits(point.process_bytes)]
        if not fits:
            # With more room, schedules and cuts that fill it may need less than these points.
            least = least_process_bytes(points)
            raise nothing_fits(request, request.memory_bytes or 0, least, "at most ")
        if request.groups:
            # The leanest point may still exceed a small device.
            fits = [point for point in fits if not point.is_above_capacity] or fits
        kept = undominated(fits)
        bounds = [*self.bounds, *self._replicas_bounds()]
        return FrontierResult(
            points=kept,
            epsilon=None,
            time_epsilon=time_epsilon(kept[0].time_s, bounds) if is_whole else None,
            found=len(points),
            interrupted=any(own.interrupted for own in results),
            stopped=next((own.stopped for own in results if own.stopped is not None), None),
            time_limit_s=total_s,
            axes=min((own.axes for own in results if own.axes is not None), default=None),
        )

    def _replicas_bounds(self) -> Iterator[ReplicasBound]:
        for (replicas, batches), of_device in self.of_devices.items():
            found = [of_device[own.name] for own in self.request.groups if own.name in of_device]
            if len(found) == len(self.request.groups):  # else Ctrl-C ended the searches
                taken = self.request.batches or batches
                counts = self.spread.counts(replicas)
                yield ReplicasBound(found, counts, taken, batches, self._sums_s(found, replicas))

    def _sums_s(self, found: Sequence[FrontierResult], replicas: int) -> float:
        """Return the least time of the sums over replicas; searches without points bound none."""
        graphs = [own.points[0].tables.graph for own in found if own.points]
        if len(graphs) < len(found) or not graphs[0].trains:
            return 0.0
        ranks = self.request.devices // replicas
        return least_sums_s(graphs[0], ranks, replicas, self.spread.between)


@dataclass(frozen=True)
class _Case:
    """A search: a number of stages, of micro-batches, and the families that the step can have.

    It is on ``device``, one of the unlike ones if stages may have these. With
    ``replicates``, the same number of replicas is searched too.
    """

    stages: int
    micro_batches: Sequence[int]
    device: str
    families: Sequence[str] = ()
    replicates: bool = False

    @property
    def chunks(self) -> int:
        """The most chunks that a stage can have."""
        return max((FAMILIES[own].chunks for own in self.families if own != STREAM), default=1)


def _cases(graphs: Graphs, request: Request) -> Iterator[_Case]:
    """Yield the searches to run; the one without stages has all numbers of micro-batches.

    Many stages come first: their searches are short, and leave their time to the others. Raises
    :class:`UserError` for a given number of stages that the step has too few operations for.
    """
    # All alternatives have the same forward pass, and graphs of one number the same shapes.
    most = len(order_of(next(iter(graphs.values()))).first_reads)
    of_number = {way.micro_batches: graph for way, graph in graphs.items()}
    asked: Mapping[str, Family] = FAMILIES
    if INFERENCE in graphs:
        asked = {STREAM: Family()}
    elif request.schedule is not None:
        asked = {request.schedule: FAMILIES[request.schedule]}
    numbers = sorted({way.micro_batches for way in graphs})
    for stages in _counts(request):
        families = fitting(asked, stages, most) if request.stages != 1 else []
        if stages == 1:
            if request.batches is None:
                yield _Case(1, numbers, request.device)
            continue
        if not families and request.stages not in (1, AUTO):
            raise _too_many(request, asked, most)
        enough = [number for number in numbers if number >= stages]
        if not enough and (request.stages != AUTO or INFERENCE in graphs):
            enough = numbers[-1:]
        names = dict.fromkeys(own.name for own in request.groups) or [request.device]
        for number, name in itertools.product(enough, names):
            replicates = request.replicates and can_replicate(of_number[number], stages)
            replicates = replicates or (request.batches or 0) >= stages
            if families or replicates:
                yield _Case(stages, [number], name, families, replicates)


def _counts(request: Request) -> Sequence[int]:
    """Return the numbers of stages and replicas to search, 1 among them for neither."""
    if request.stages != AUTO and not request.replicates:
        return [int(request.stages)]
    whole = math.gcd(request.devices, *(own.count for own in request.groups))
    sizes = [size for size in range(1, whole + 1) if whole % size == 0]
    counts = [request.devices // size for size in sizes]
    return counts if counts[-1] == 1 else [*counts, 1]


def _too_many(request: Request, families: Mapping[str, Family], most: int) -> UserError:
    """Return the error for more stages than any of ``families`` can have with ``most`` chunks."""
    name = min(families, key=lambda each: families[each].chunks)
    chunks = families[name].chunks
    of = f" of {chunks} chunks, as {name} has," if chunks > 1 else ""
    fit, stages = max(most // chunks, 1), request.interface.name_of("stages")
    return UserError(
        f"{stages}: expected at most {fit} stage{'' if fit == 1 else 's'}{of} for {most} "
        f"first read{'' if most == 1 else 's'} of a parameter, got: {request.stages}"
    )


class _Spread:
    """The devices of the stages of points of a search: unlike groups in every order.

    Replicas are in the order of the groups. ``between`` has the links between groups.
    """

    def __init__(self, request: Request) -> None:
        self.groups, self.between = request.groups, request.description.between_groups
        # Of a part of the devices, as in the search of one stage.
        is_one, own = request.stages == 1, replace(request, batches=None, overlap="off")
        self.request = replace(own, stages=AUTO) if is_one else own
        self._known = dict[tuple[MeshTables, str], MeshTables]()

    def counts(self, parts: int) -> list[int]:
        """Return the number of stages or replicas of each group if there are ``parts`` in all."""
        size = self.request.devices // parts
        return [own.count // size for own in self.groups]

    def replicas(self, found: FrontierResult, replicas: int) -> Iterator[list[FrontierPoint]]:
        """Yield each point of a search on the device of each of ``replicas``."""
        for point in found.points:
            pairs = zip(self.groups, self.counts(replicas), strict=True)
            yield [
                own
                for group, n in pairs
                for own in [self._priced(point, group.name)]
                for _ in range(n)
            ]

    def devices(self, point: FrontierPoint, stages: int) -> Iterator[StageDevices]:
        """Yield the devices of ``stages`` for the strategies of ``point``."""
        if not self.groups:
            yield StageDevices.of_one_kind(point, stages, self.request.limit_bytes)
            return
        size = self.request.devices // stages
        priced = {own.name: self._priced(point, own.name) for own in self.groups}
        for order in dict.fromkeys(itertools.permutations(self.groups)):
            counts = [own.count // size for own in order]
            points, link = [priced[own.name] for own in order], self.between.network
            yield StageDevices(points, counts, link, self.request.memory_bytes)

    def _priced(self, point: FrontierPoint, name: str) -> FrontierPoint:
        """Return ``point`` on the device called ``name``."""
        key = point.tables, name
        if key not in self._known:
            own = replace(self.request, device=name)
            device = replace(own.description, memory_capacity_bytes=own.capacity_bytes)
            self._known[key] = point.tables.moved_to(device)
        return point.priced_by(self._known[key])


def _pipelines(found: FrontierResult, case: _Case, spread: _Spread) -> Iterator[Pipeline]:
    """Yield all pipelines of the points of one stage."""
    for point in found.points if case.families else ():
        for devices in spread.devices(point, case.stages):
            if case.families == [STREAM]:
                yield stream_of(devices)
            else:
                yield from pipelines_of(devices, case.families)


def _point(pipeline: Pipeline, request: Request) -> StagedPoint:
    by_interval = request.objective == THROUGHPUT
    capacities = [request.capacity_bytes] * pipeline.stages
    if request.groups:
        capacities = [own.memory_capacity_bytes for own in pipeline.devices.devices]
    given = pipeline.point.given
    return StagedPoint(**given, pipeline=pipeline, capacities=capacities, by_interval=by_interval)
