"""The frontier of a model over meshes: what `--pareto` shows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.errors import UserError
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.search.evaluate import Cost, Evaluator
from tensoropt.compiler.search.graph import read_graph
from tensoropt.compiler.search.methods.registry import run_method
from tensoropt.compiler.search.methods.result import Case, DoesNotFitError, Found, Limits
from tensoropt.compiler.search.problem import no_choice
from tensoropt.compiler.search.tables import MeshTables
from tensoropt.compiler.sharding.rule import Strategy
from tensoropt.dialects.mlir import ir

__all__ = [
    "FrontierPoint",
    "FrontierResult",
    "SearchOptions",
    "distinct_meshes",
    "frontier_point",
    "search_frontier",
    "search_tables",
]

Choice = npt.NDArray[np.int32]
"""Per choosing node, the number of its strategy."""


@dataclass(frozen=True)
class FrontierPoint:
    """One trade-off: a mesh, a strategy per node of the graph, and what they cost."""

    index: int
    mesh: tuple[int, ...]
    cost: Cost
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
    def memory_bytes(self) -> int:
        return self.cost.memory_bytes

    @property
    def static_bytes(self) -> int:
        return self.cost.static_bytes

    @property
    def transient_bytes(self) -> int:
        return self.cost.transient_bytes


@dataclass(frozen=True)
class SearchOptions:
    """How to search: by the method ``name`` of ``methods/registry.py``.

    ``epsilon`` bounds how far, relatively and in both objectives, a point of the exact frontier may
    lie from a returned one; 0 is exact. ``points`` is the most that are kept per mesh for exact
    costing, spread over the frontier; the fastest and the leanest always are. With
    ``memory_bytes``, so are the points around that limit. ``time_limit_s`` is for all meshes.
    """

    name: str = "ft"
    seed: int = 0
    epsilon: float = 0.0
    time_limit_s: float | None = None
    points: int = 100
    memory_bytes: int | None = None


@dataclass(frozen=True)
class FrontierResult:
    """Points sorted by time, none dominated.

    ``epsilon`` is the bound the search reached, ``None`` where the points are no frontier within
    one. The first takes at most ``1 + time_epsilon`` of the least time; ``None``: no bound.
    ``found`` counts what the searches of all meshes returned, of which ``points`` is a choice.
    """

    points: Sequence[FrontierPoint]
    epsilon: float | None
    time_epsilon: float | None = None
    found: int = 0


def search_frontier(
    module: ir.Module,
    meshes: Iterable[Mesh],
    device: Device,
    options: SearchOptions | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> FrontierResult:
    """Return the union of the frontiers of ``module`` over ``meshes``.

    The search runs on tables (``tables.py``); every point it returns is then costed as the graphs
    it leads to (``evaluate.py``), and those that turn out dominated are dropped.
    """
    options = options or SearchOptions()
    graph = read_graph(module)
    every = _chosen(distinct_meshes(meshes, device), options)
    return search_tables((MeshTables(graph, m, device) for m in every), len(every), options, say)


def search_tables(
    every: Iterable[MeshTables],
    count: int,
    options: SearchOptions,
    say: Callable[[str], None] = lambda text: None,
) -> FrontierResult:
    """Return the union of the frontiers over ``count`` meshes, each taken when it is searched."""
    started = time.monotonic()
    points: list[FrontierPoint] = []
    results: list[Found] = []
    refused = no_choice()
    for number, tables in enumerate(every):
        say(f"searching mesh {tables.mesh}")
        limits = _limits(options, started, count - number)
        try:
            results.append(run_method(options.name, Case(tables.problem, tables), limits))
        except DoesNotFitError as error:
            refused = error
            continue
        except UserError as error:
            raise _on_mesh(error, tables.mesh, count) from None
        evaluator = Evaluator(tables)
        points += [frontier_point(evaluator, c) for c in _kept(tables, results[-1], options)]
    if not results:
        raise refused
    epsilon = _worst([result.epsilon for result in results])
    time_epsilon = _worst([result.time_epsilon for result in results])
    found = sum(len(result.points) for result in results)
    return FrontierResult(_prune(points), epsilon, time_epsilon, found)


def _on_mesh(error: UserError, mesh: Mesh, count: int) -> UserError:
    """Say which of several meshes a method refused."""
    return UserError(f"{error} (mesh {mesh})") if count > 1 else error


def _worst(bounds: Sequence[float | None]) -> float | None:
    """Return the largest bound; there is none where one is missing."""
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None) if len(known) == len(bounds) else None


def _limits(options: SearchOptions, started: float, meshes_left: int) -> Limits:
    """Return what the next mesh may take: its share of the time that is left."""
    share = None
    if options.time_limit_s is not None:
        left = options.time_limit_s - (time.monotonic() - started)
        share = max(left, 0.0) / meshes_left
    return Limits(options.seed, options.epsilon, share, options.memory_bytes)


def _chosen(meshes: list[Mesh], options: SearchOptions) -> list[Mesh]:
    """Return the meshes to search: all, or for a random choice one of them."""
    return [random.Random(options.seed).choice(meshes)] if options.name == "random" else meshes


def distinct_meshes(meshes: Iterable[Mesh], device: Device) -> list[Mesh]:
    """Leave out meshes that only reorder axes of equal links: their costs are the same."""
    kept: dict[object, Mesh] = {}
    for mesh in meshes:
        links = device.axis_links(mesh)
        key = tuple(sorted(zip(mesh.shape, map(repr, links), strict=True)))
        kept.setdefault(key, mesh)
    return list(kept.values())


def _kept(tables: MeshTables, result: Found, options: SearchOptions) -> list[Choice]:
    points = result.points
    kept = _spread(len(points), options.points)
    if options.memory_bytes is not None:
        kept |= _around([point.memory for point in points], options.memory_bytes)
    # Copies of shared tensors come last; the program takes each from the nearest layout there is.
    chosen = len(tables.variables)
    return [points[i].choice[:chosen] for i in sorted(kept)]


def _spread(count: int, wanted: int) -> set[int]:
    """Return at most ``wanted`` of ``count`` positions, evenly, both ends among them."""
    if count <= wanted:
        return set(range(count))
    return {round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}


def _around(memories: Sequence[float], limit: float, reach: int = 16) -> set[int]:
    """Return the positions next to where falling ``memories`` pass ``limit``."""
    first = next((i for i, memory in enumerate(memories) if memory <= limit), len(memories))
    return set(range(max(first - reach, 0), min(first + reach, len(memories))))


def frontier_point(evaluator: Evaluator, choice: Choice) -> FrontierPoint:
    """Return the point of one choice, with its cost as the emitted graphs will have it."""
    tables = evaluator.tables
    strategies = {
        node: tables.options[node][int(picked)]
        for node, picked in zip(tables.variables, choice, strict=True)
    }
    cost = evaluator.evaluate(choice.tolist())
    return FrontierPoint(0, tables.mesh.shape, cost, strategies, tables)


def _prune(points: list[FrontierPoint]) -> list[FrontierPoint]:
    """Return the points that none is better than in both objectives, sorted by time, numbered."""
    kept: list[FrontierPoint] = []
    for point in sorted(points, key=lambda p: (p.time_s, p.memory_bytes)):
        if not kept or point.memory_bytes < kept[-1].memory_bytes:
            kept.append(point)
    return [replace(point, index=index) for index, point in enumerate(kept)]
