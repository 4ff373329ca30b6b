"""The frontier of a model over meshes, for `--pareto`."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.evaluate import (
    ProgramCost,
    Running,
    evaluator_of,
)
from tensoropt.compiler.program.footprint import footprint
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.control import OutOfTimeError
from tensoropt.compiler.search.frontier.anytime import Anytime
from tensoropt.compiler.search.frontier.bounds import NOTHING
from tensoropt.compiler.search.frontier.candidate import Candidate, Costed
from tensoropt.compiler.search.frontier.options import (
    LeftOut,
    Say,
    SearchOptions,
    Stop,
    by_promise,
    distinct_meshes,
)
from tensoropt.compiler.search.frontier.points import Overfull
from tensoropt.compiler.search.problem.cost_tables import Assignment, Memo
from tensoropt.compiler.search.problem.problem import DoesNotFitError, Floats
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.collection import without_collection
from tensoropt.compiler.training.alternatives import INFERENCE, Alternative
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "FrontierPoint",
    "FrontierResult",
    "LeftOut",
    "SearchOptions",
    "StepPoint",
    "as_step",
    "distinct_meshes",
    "frontier_point",
    "joined",
    "points_of",
    "search_candidates",
    "search_frontier",
    "search_graphs",
    "search_tables",
    "thin_out",
    "unbeaten",
    "undominated",
    "worst_bound",
]


_LEANER = 1.25
"""Memory of a plan in that of a faster one, above which its program is not overlapped.

LLaMA of 40 layers, trained on 64 devices: 31 of 48 plans remain, and 30 with 1.
"""


@dataclass(frozen=True)
class FrontierPoint:
    """One trade-off: a mesh, a strategy per node of the graph, and their cost."""

    index: int
    mesh: tuple[int, ...]
    cost: ProgramCost
    strategies: Mapping[int, Strategy] = field(repr=False)
    tables: MeshTables = field(repr=False, compare=False)

    @property
    def given(self) -> dict[str, Any]:
        """Its fields, for points of other programs with its strategies."""
        return {own.name: getattr(self, own.name) for own in fields(FrontierPoint)}

    @property
    def time_s(self) -> float:
        return self.cost.time_s

    @property
    def compute_s(self) -> float:
        return self.cost.compute_s

    @property
    def communication_s(self) -> float:
        return self.cost.communication_s

    @property
    def hidden_s(self) -> float:
        return self.cost.hidden_s

    @cached_property
    def process_bytes(self) -> int:
        """The memory of the process of a rank; linear in the program, the first time."""
        if self.tables.device.process is None:
            return self.memory_bytes
        held = footprint(self.tables, self.strategies, self.cost, self.running)
        return self.tables.device.process_bytes(held, math.prod(self.mesh))

    @property
    def overfull(self) -> Overfull | None:
        """Its process, if that takes more memory than the device is known to have."""
        device = self.tables.device
        capacity = device.memory_capacity_bytes
        if capacity is None or self.process_bytes <= capacity:
            return None
        return Overfull(device.name, self.process_bytes, capacity)

    @property
    def is_above_capacity(self) -> bool:
        return self.overfull is not None

    def priced_by(self, tables: MeshTables) -> Self:
        """Return the point of the same strategies on another device; linear in the program."""
        own = replace(self, tables=tables)
        return replace(own, cost=evaluator_of(tables).emitted(own.assignment))

    def fits(self, limit_bytes: int | None) -> bool:
        """Return whether its process fits a limit; ``None`` is none."""
        return limit_bytes is None or self.process_bytes <= limit_bytes

    def with_index(self, index: int) -> Self:
        """Return the point under another number, without computing its memory again."""
        point = copy(self)
        object.__setattr__(point, "index", index)  # the class is frozen for all others
        return point

    @property
    def running(self) -> Running:
        """The memory of its running process without weights (decision 46)."""
        return evaluator_of(self.tables).running(self.assignment)

    @property
    def memory_bytes(self) -> int:
        return self.cost.memory_bytes

    @property
    def static_bytes(self) -> int:
        return self.cost.static_bytes

    @property
    def transient_bytes(self) -> int:
        return self.cost.transient_bytes

    @property
    def assignment(self) -> list[int]:
        """The number of the strategy of each node that chooses, in the order of the tables."""
        tables = self.tables
        return [_number(tables.options[i], self.strategies[i]) for i in tables.variables]


def _number(options: Sequence[Strategy], chosen: Strategy) -> int:
    """Return the number of ``chosen`` among the options, by identity."""
    return next(number for number, option in enumerate(options) if option is chosen)


_T = TypeVar("_T")
_P = TypeVar("_P", bound=FrontierPoint)


@dataclass(frozen=True)
class StepPoint(FrontierPoint):
    """A point of a training step, with its alternative."""

    recompute: str = "none"
    micro_batches: int = 1


@dataclass(frozen=True)
class FrontierResult:
    """Points sorted by time, none dominated, at least the resolution apart.

    Attributes:
        epsilon: the bound: every plan on the searched meshes is within ``1 + epsilon`` of a point,
            in time and in memory. ``None`` if the points are no frontier with a bound.
        time_epsilon: the first point takes at most ``1 + time_epsilon`` times the least time;
            ``None`` without a bound.
        found: the number of points that the last runs of all candidates returned.
        left_out: the meshes without points.
        axes: if deeper meshes were left out for lack of time, the largest number of axes of the
            meshes that ``epsilon`` is about; all meshes up to it were searched.
        by_tables: the bounds are about cost tables, which may charge more memory than programs.
        interrupted: Ctrl-C ended the search.
        stopped: the cause that ended the search before its bound.
        time_limit_s: the time limit of the search, ``None`` without one.
    """

    points: Sequence[FrontierPoint]
    epsilon: float | None
    time_epsilon: float | None = None
    found: int = 0
    left_out: Sequence[LeftOut] = ()
    interrupted: bool = False
    stopped: Stop | None = None
    time_limit_s: float | None = None
    axes: int | None = None
    by_tables: bool = False


def search_frontier(
    module: ir.Module,
    meshes: Iterable[Mesh],
    device: Device,
    options: SearchOptions | None = None,
    say: Say = lambda text: None,
) -> FrontierResult:
    """Return the frontier of ``module`` over ``meshes``; see :func:`search_graphs`."""
    return search_graphs({INFERENCE: read_graph(module)}, meshes, device, options, say)


def search_graphs(
    graphs: Mapping[Alternative, Graph],
    meshes: Iterable[Mesh],
    device: Device,
    options: SearchOptions | None = None,
    say: Say = lambda text: None,
) -> FrontierResult:
    """Return the union of the frontiers of all ``graphs`` over ``meshes``.

    The search runs on tables (``problem/tables.py``). Its points are costed as programs
    (``problem/evaluate.py``), and dominated programs are dropped.
    """
    options = options or SearchOptions()
    names_axes = any(graph.names_axes for graph in graphs.values())
    distinct = distinct_meshes(meshes, device, names_axes=names_axes)
    # The first and the last alternative have the fastest and the leanest plans.
    first, *rest = graphs
    candidates = []
    for mesh in sorted(distinct, key=by_promise):
        memos: dict[int, Memo] = {}  # graphs with equal micro-batches are of one step
        for alternative in (first, *reversed(rest)):
            graph, batches = graphs[alternative], alternative.micro_batches
            memo = memos.setdefault(batches, Memo(mesh, device))
            make = partial(mesh_tables, graph, mesh, device, memo)
            candidates.append(Candidate(mesh, make, alternative))
    return search_candidates(candidates, options, say)


def search_tables(
    every: Iterable[MeshTables], options: SearchOptions, say: Say = lambda text: None
) -> FrontierResult:
    """Return the union of the frontiers of given tables."""
    made = [Candidate(tables.mesh, lambda own=tables: own) for tables in every]  # type: ignore[misc]
    return search_candidates(made, options, say)


def search_candidates(
    candidates: Sequence[Candidate], options: SearchOptions, say: Say = lambda text: None
) -> FrontierResult:
    """Return the union of the frontiers of ``candidates``, searched in one loop.

    A candidate that cannot be searched is left out. Raises UserError if no candidate has a point;
    Ctrl-C raises KeyboardInterrupt unless the options say otherwise and a point was found.
    """
    search = Anytime(candidates, options, say)
    with without_collection():
        search.run()
    if not search.searched:
        raise search.failure()
    programs = [
        program
        for candidate, assignment, _ in _worth_overlap(search.plans.costed)
        for program in _programs(candidate.alternative, candidate.tables, assignment)
    ]
    if not options.may_exceed(max(_searched(program)[1] for program in programs)):
        # The process memory of all points would take seconds to compute; near a limit it counts.
        programs = unbeaten(programs, _searched)
    found = undominated(map(_point, programs))
    points = thin_out(found, options)
    epsilon, axes = _bound(search)
    return FrontierResult(
        points,
        _widened(epsilon, found, points),
        worst_bound([search.plans.time_bound(candidate) for candidate in search.searched]),
        sum(len(candidate.results[-1].points) for candidate in candidates if candidate.results),
        _left_out(candidates),
        search.interrupted,
        search.stopped,
        axes=axes,
        by_tables=epsilon is not None and not all(c.tables.learns for c in search.searched),
    )


def _worth_overlap(costed: Sequence[Costed]) -> list[Costed]:
    """Return the plans to overlap, since each takes long to compute.

    The others are slower than a plan that needs less memory by far, as processes may reverse small
    differences. Quadratic in the plans.
    """
    time_s, sizes = np.array([(cost.time_s, cost.memory_bytes) for _, _, cost in costed]).T
    is_leaner = _LEANER * sizes < sizes[:, None]
    is_beaten = np.any((time_s <= time_s[:, None]) & is_leaner, axis=1)
    return [costed[number] for number in np.flatnonzero(~is_beaten).tolist()]


def _bound(search: Anytime) -> tuple[float | None, int | None]:
    """Return the bound, and up to how many axes it covers all meshes if some were left out.

    All shallow meshes that were searched count: the few of one axis may be exact by points of
    others, which says nothing about these points. A deep mesh that the end of the time interrupts
    counts as left out, with all of its depth, if it would widen the bound.
    """
    gaps = dict(zip(search.searched, search.gaps, strict=True))
    shallow = worst_bound([gap for c, gap in gaps.items() if not c.is_deep])
    enough = math.inf if shallow is None else max(shallow, search.options.epsilon)

    def is_late(candidate: Candidate) -> bool:
        gap = gaps.get(candidate)
        is_cut = candidate.is_deep and not candidate.closed and candidate in gaps
        is_wider = gap is None or gap > enough
        return isinstance(candidate.error, OutOfTimeError) or (is_cut and is_wider)

    axes = min((c.axes for c in search.candidates if is_late(c)), default=0) - 1
    if axes < min((c.axes for c in gaps), default=0):
        return worst_bound(search.gaps), None
    return worst_bound([gap for c, gap in gaps.items() if c.axes <= axes or not c.is_deep]), axes


def _left_out(candidates: Sequence[Candidate]) -> list[LeftOut]:
    """Return each mesh without points once per reason, with its alternatives unless all."""
    by_reason: dict[LeftOut, list[str]] = {}
    for candidate in candidates:
        if candidate.reason is not None and not isinstance(candidate.error, DoesNotFitError):
            left = LeftOut(candidate.mesh.shape, candidate.reason)
            by_reason.setdefault(left, []).append(str(candidate.alternative))
    every = len({candidate.alternative for candidate in candidates})
    return [
        left
        if len(names) == every
        else LeftOut(left.mesh, f"{left.reason} (recompute {', '.join(names)})")
        for left, names in by_reason.items()
    ]


def thin_out(points: Sequence[_P], options: SearchOptions) -> list[_P]:
    """Return points that differ by the resolution in both printed figures, and cover the others.

    ``points`` are sorted by time and undominated. If more than ``most_points`` are left, the
    resolution is coarser. Points within a memory limit are not dropped for points above it.
    """
    above = [point for point in points if not point.fits(options.memory_bytes)]
    within = points[len(above) :]  # processes need less from point to point

    def cover(factor: float) -> list[_P]:
        return [*_covering(above, factor), *_covering(within, factor)]

    found = cover(1 + options.resolution)
    most = options.most_points
    if most is not None and len(found) > most:
        factors = _factors(points)
        # Any factor leaves a point above the limit and one within it.
        place = bisect_left(factors, -max(most, 2), key=lambda factor: -len(cover(factor)))
        found = cover(factors[min(place, len(factors) - 1)])
    return [point.with_index(index) for index, point in enumerate(found)]


def _factors(points: Sequence[FrontierPoint]) -> list[float]:
    """Return every factor at which a point begins to cover another, ascending; O(n^2 log n)."""
    costs = _costs(points)
    factors: list[float] = np.unique((costs / costs[:, None]).max(axis=2)).tolist()
    return factors


def _costs(points: Sequence[FrontierPoint]) -> Floats:
    """Return the printed seconds and bytes [point, 2], above 0."""
    return np.array([(max(p.time_s, NOTHING), max(p.process_bytes, 1)) for p in points])


def _covering(points: Sequence[_P], factor: float) -> list[_P]:
    """Return the fewest points, the fastest among them, that cover all within ``factor``.

    A point is covered by the next faster point that is kept if that needs at most ``factor`` times
    its memory, by the next slower one if that takes at most ``factor`` times its time. Quadratic in
    the points in the worst case.
    """
    kept, at, sizes = list(points[:1]), 0, [point.process_bytes for point in points]
    while True:
        # Points up to here are covered by the last one that was kept.
        free = at + 1
        while free < len(points) and sizes[at] <= factor * sizes[free]:
            free += 1
        if free >= len(points):
            return kept
        # The farthest point that still covers the first of the others.
        most_s, at = factor * points[free].time_s, free
        while at + 1 < len(points) and points[at + 1].time_s <= most_s:
            at += 1
        kept.append(points[at])


def _widened(
    epsilon: float | None, points: Sequence[FrontierPoint], rows: Sequence[FrontierPoint]
) -> float | None:
    """Return the bound of ``rows``, some of the ``points``, if these are within ``epsilon``.

    Points count with their printed memory. Quadratic in the points.
    """
    if epsilon is None:
        return None
    factors = (_costs(rows) / _costs(points)[:, None]).max(axis=2).min(axis=1)
    return float(epsilon + (1 + epsilon) * (factors.max() - 1))


def worst_bound(bounds: Sequence[float | None]) -> float | None:
    """Return the largest bound; ``None`` if a bound is missing."""
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None) if len(known) == len(bounds) else None


def points_of(tables: MeshTables, assignment: Assignment) -> list[FrontierPoint]:
    """Return the undominated points of one assignment.

    If collectives overlap with operators, a program may be faster with more memory.
    """
    return undominated(_point(program) for program in _programs(INFERENCE, tables, assignment))


def frontier_point(tables: MeshTables, assignment: Assignment) -> FrontierPoint:
    """Return the point of one assignment, with the cost of its graphs after fusion and overlap."""
    return _point((INFERENCE, tables, assignment, evaluator_of(tables).emitted(assignment)))


def as_step(result: FrontierResult, alternative: Alternative) -> FrontierResult:
    """Return a result of one training step, with its points marked as such."""
    points = [_of_step(point, alternative) for point in result.points]
    return replace(result, points=points)


_Program = tuple[Alternative, MeshTables, Assignment, ProgramCost]


def _programs(
    alternative: Alternative, tables: MeshTables, assignment: Assignment
) -> Iterator[_Program]:
    """Yield the programs of an assignment, the leaner one first, each with its tables."""
    cost = evaluator_of(tables).emitted(assignment)
    yield alternative, tables, assignment, cost
    if cost.is_limited:
        ample = tables.ample
        yield alternative, ample, assignment, evaluator_of(ample).emitted(assignment)


def _point(program: _Program) -> FrontierPoint:
    alternative, tables, assignment, cost = program
    strategies = {
        node: tables.options[node][int(picked)]
        for node, picked in zip(tables.variables, assignment, strict=True)
    }
    point = FrontierPoint(0, tables.mesh.shape, cost, strategies, tables)
    return point if alternative == INFERENCE else _of_step(point, alternative)


def _of_step(point: FrontierPoint, alternative: Alternative) -> StepPoint:
    own = {name: getattr(point, name) for name in ("index", "mesh", "cost", "strategies", "tables")}
    return StepPoint(
        **own, recompute=alternative.recompute, micro_batches=alternative.micro_batches
    )


def _searched(program: _Program) -> tuple[float, int]:
    """Return the costs that the search compares: all of a process but packed and copied tensors."""
    _, tables, _, cost = program
    return cost.time_s, cost.memory_bytes + tables.rest_bytes


def unbeaten(items: Iterable[_T], objectives: Callable[[_T], tuple[float, int]]) -> list[_T]:
    """Return the items that no other item beats in both objectives, sorted by the first."""
    kept: list[_T] = []
    least = math.inf
    for item in sorted(items, key=objectives):
        if objectives(item)[1] < least:
            least = objectives(item)[1]
            kept.append(item)
    return kept


def joined(results: Sequence[FrontierResult], points: Sequence[FrontierPoint]) -> FrontierResult:
    """Return the result that has ``points`` of all ``results``, with the weakest of their bounds.

    The bounds are about the plans of all results together.
    """
    bounds = [(own.epsilon, own.time_epsilon) for own in results]
    epsilons, time_epsilons = zip(*bounds, strict=True)
    return replace(
        results[0],
        points=points,
        epsilon=None if None in epsilons else max(epsilons),
        time_epsilon=None if None in time_epsilons else max(time_epsilons),
        found=sum(own.found for own in results),
        left_out=[left for own in results for left in own.left_out],
        axes=min((own.axes for own in results if own.axes is not None), default=None),
        by_tables=any(own.by_tables for own in results),
        interrupted=any(own.interrupted for own in results),
        stopped=next((own.stopped for own in results if own.stopped is not None), None),
    )


def undominated(points: Iterable[_P]) -> list[_P]:
    """Return the points that none beats in time and process memory, sorted and numbered."""
    kept = unbeaten(points, lambda one: (one.time_s, one.process_bytes))
    return [point.with_index(index) for index, point in enumerate(kept)]
