"""The frontier of a model over meshes: what `--pareto` shows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.search.frontier.meshes import (
    Assignment,
    LeftOut,
    MeshSearch,
    Say,
    SearchOptions,
    Stop,
    distinct_meshes,
    promise,
)
from tensoropt.compiler.search.problem.evaluate import (
    Evaluator,
    ProgramCost,
    Running,
    evaluator_of,
)
from tensoropt.compiler.search.problem.footprint import footprint
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.dialects.mlir import ir

__all__ = [
    "FrontierPoint",
    "FrontierResult",
    "LeftOut",
    "SearchOptions",
    "distinct_meshes",
    "frontier_point",
    "points_of",
    "search_frontier",
    "search_graph",
    "search_tables",
    "undominated",
    "worst_bound",
]


@dataclass(frozen=True)
class FrontierPoint:
    """One trade-off: a mesh, a strategy per node of the graph, and what they cost."""

    index: int
    mesh: tuple[int, ...]
    cost: ProgramCost
    strategies: Mapping[int, Strategy] = field(repr=False)
    tables: MeshTables = field(repr=False, compare=False)

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
        """What the process of a rank takes; linear in the program, the first time."""
        if self.tables.device.process is None:
            return self.memory_bytes
        held = footprint(self.tables, self.strategies, self.cost, self.running)
        return self.tables.device.process_bytes(held, math.prod(self.mesh))

    @property
    def running(self) -> Running:
        """What its process takes room for beside weights while it runs (decision 46)."""
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
    """Return the number of an option, which is one of them and not only equal to it."""
    return next(number for number, option in enumerate(options) if option is chosen)


@dataclass(frozen=True)
class FrontierResult:
    """Points sorted by time, none dominated.

    ``epsilon`` is the bound the search reached, ``None`` where the points are no frontier within
    one. The first takes at most ``1 + time_epsilon`` of the least time; ``None``: no bound.
    ``found`` counts what the searches of all meshes returned, of which ``points`` is a part.
    The bounds are those of the meshes that were searched, without those ``left_out``.
    ``interrupted``: Ctrl-C ended the search. ``stopped`` names what ran out before the bound
    that was asked for was proven, on any mesh; ``None`` if nothing did. ``time_limit_s`` is what
    the search had, ``None`` where nothing limits it.
    """

    points: Sequence[FrontierPoint]
    epsilon: float | None
    time_epsilon: float | None = None
    found: int = 0
    left_out: Sequence[LeftOut] = ()
    interrupted: bool = False
    stopped: Stop | None = None
    time_limit_s: float | None = None


def search_frontier(
    module: ir.Module,
    meshes: Iterable[Mesh],
    device: Device,
    options: SearchOptions | None = None,
    say: Say = lambda text: None,
) -> FrontierResult:
    """Return the union of the frontiers of ``module`` over ``meshes``; see :func:`search_graph`."""
    return search_graph(read_graph(module), meshes, device, options, say)


def search_graph(
    graph: Graph,
    meshes: Iterable[Mesh],
    device: Device,
    options: SearchOptions | None = None,
    say: Say = lambda text: None,
) -> FrontierResult:
    """Return the union of the frontiers of ``graph`` over ``meshes``, in the order of promise.

    The search runs on tables (``tables.py``); every point it returns is then costed as the graphs
    it leads to (``evaluate.py``), and those that turn out dominated are dropped.
    """
    options = options or SearchOptions()
    distinct = distinct_meshes(meshes, device, names_axes=graph.names_axes)
    every = sorted(_chosen(distinct, options), key=promise)
    return search_tables(_each(graph, every, device), len(every), options, say)


def _each(graph: Graph, meshes: Iterable[Mesh], device: Device) -> Iterator[MeshTables]:
    """Yield the tables of each mesh; those of its edges are dropped before the next."""
    for mesh in meshes:
        tables = mesh_tables(graph, mesh, device)
        yield tables
        tables.forget_edges()


def search_tables(
    every: Iterable[MeshTables],
    count: int,
    options: SearchOptions,
    say: Say = lambda text: None,
) -> FrontierResult:
    """Return the union of the frontiers over ``count`` meshes, each taken when it is searched.

    A mesh that cannot be searched is left out. Raises UserError when that is so for all of them;
    Ctrl-C raises KeyboardInterrupt unless ``options`` say otherwise and something is found already.
    """
    search = MeshSearch(options, count, say)
    for tables in every:
        search.add(tables)
        if search.done:
            break
    search.refine()
    if not search.found:
        raise search.nothing()
    costed = [program for t, one, _ in search.costed for program in _programs(t, one)]
    if options.memory_bytes is None:
        # To work out the processes of all would take seconds; under a limit all that may fit count.
        costed = _unbeaten(costed, _tensors)
    return FrontierResult(
        undominated(_point(*one) for one in costed),
        worst_bound(search.bounds),
        worst_bound([result.time_epsilon for result in search.found]),
        sum(len(result.points) for result in search.found),
        search.left_out,
        search.interrupted,
        search.stopped,
    )


def worst_bound(bounds: Sequence[float | None]) -> float | None:
    """Return the largest bound; there is none where one is missing."""
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None) if len(known) == len(bounds) else None


def _chosen(meshes: list[Mesh], options: SearchOptions) -> list[Mesh]:
    """Return the meshes to search: all, or for a random assignment one of them."""
    return [random.Random(options.seed).choice(meshes)] if options.name == "random" else meshes


def points_of(tables: MeshTables, assignment: Assignment) -> list[FrontierPoint]:
    """Return the points of one assignment that none of them beats: where collectives run beside
    operators, a program may be faster with more memory."""
    return undominated(_point(*one) for one in _programs(tables, assignment))


_Program = tuple[MeshTables, Assignment, ProgramCost]


def _programs(tables: MeshTables, assignment: Assignment) -> Iterator[_Program]:
    """Yield the programs of an assignment, the leaner one first, each with the tables it is of."""
    yield tables, assignment, evaluator_of(tables).emitted(assignment)
    if tables.device.overlaps:
        ample = tables.ample
        yield ample, assignment, evaluator_of(ample).emitted(assignment)


def frontier_point(evaluator: Evaluator, assignment: Assignment) -> FrontierPoint:
    """Return the point of one assignment, with its cost as the emitted graphs will have it."""
    return _point(evaluator.tables, assignment, evaluator.emitted(assignment))


def _point(tables: MeshTables, assignment: Assignment, cost: ProgramCost) -> FrontierPoint:
    strategies = {
        node: tables.options[node][int(picked)]
        for node, picked in zip(tables.variables, assignment, strict=True)
    }
    return FrontierPoint(0, tables.mesh.shape, cost, strategies, tables)


_T = TypeVar("_T")
_P = TypeVar("_P", bound=FrontierPoint)


def _tensors(costed: _Program) -> tuple[float, int]:
    cost = costed[2]
    return cost.time_s, cost.memory_bytes


def _unbeaten(items: Iterable[_T], objectives: Callable[[_T], tuple[float, int]]) -> list[_T]:
    """Return those that no other one beats in both objectives, sorted by the first."""
    kept: list[_T] = []
    least = math.inf
    for item in sorted(items, key=objectives):
        if objectives(item)[1] < least:
            least = objectives(item)[1]
            kept.append(item)
    return kept


def undominated(points: Iterable[_P]) -> list[_P]:
    """Return the points that none beats in both time and memory of the process, sorted by time,
    numbered."""
    kept = _unbeaten(points, lambda one: (one.time_s, one.process_bytes))
    return [replace(point, index=index) for index, point in enumerate(kept)]
