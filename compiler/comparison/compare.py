"""Comparison of search methods on the same tables."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.frontier.points import Point, fastest
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    SearchOptions,
    distinct_meshes,
    frontier_point,
    search_tables,
)
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Attempt", "Compared", "attempt", "compare_methods", "searched_by"]

Say = Callable[[str], None]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Attempt:
    """The result of a method, with the costs of its graphs, and the seconds of its run.

    Without a result, ``refused`` is the reason.
    """

    method: str
    result: FrontierResult | None
    seconds: float
    refused: str


@dataclass(frozen=True)
class Compared:
    """The fastest point of a method, its seconds, and its time relative to the least.

    Without a point, ``refused`` is the reason.
    """

    method: str
    point: Point | None
    seconds: float
    ratio: float | None
    refused: str


def compare_methods(
    graph: Graph,
    meshes: Iterable[Mesh],
    device: Device,
    every: Mapping[str, SearchOptions],
    seed: int = 0,
    say: Say = lambda text: None,
) -> list[Compared]:
    """Return the fastest point of each method, its seconds, and its time over the least time.

    ``every`` has the options by method. All methods share the tables, which are made first. The
    seconds include the costs of the points. The graphs of a point, and of the optimum, have the
    printed costs.
    """
    kept = distinct_meshes(meshes, device, names_axes=graph.names_axes)
    tables = [mesh_tables(graph, mesh, device) for mesh in kept]
    least = min(_optimum(table, say).time_s for table in tables)
    return [
        _compared(attempt(name, tables, options, seed, say), options, least)
        for name, options in every.items()
    ]


def _optimum(tables: MeshTables, say: Say) -> FrontierPoint:
    say(f"tables of mesh {tables.mesh}")
    assignment = solve_min_time(tables.problem).assignment
    return frontier_point(tables, tables.decode(assignment))


def searched_by(name: str, seed: int, meshes: Sequence[_T]) -> Sequence[_T]:
    """Return the ``meshes`` that a method searches: one of them for a random assignment."""
    return [random.Random(seed).choice(meshes)] if name == "random" else meshes


def attempt(
    name: str,
    tables: Sequence[MeshTables],
    options: SearchOptions,
    seed: int = 0,
    say: Say = lambda text: None,
) -> Attempt:
    """Run the method ``name``, with the solver of ``options``, on the tables of all its meshes."""
    own, started = searched_by(name, seed, tables), time.perf_counter()
    try:
        result = search_tables(own, options, lambda text: say(f"{name}: {text}"))
        _fitting(result.points, options.memory_bytes)
    except UserError as error:
        refused = str(error).removeprefix(f"--search {name}: ")
        return Attempt(name, None, time.perf_counter() - started, refused)
    return Attempt(name, result, time.perf_counter() - started, "")


def _compared(attempt: Attempt, options: SearchOptions, least_s: float) -> Compared:
    """Return the row of one method."""
    if attempt.result is None:
        return Compared(attempt.method, None, attempt.seconds, None, attempt.refused)
    point = fastest(_fitting(attempt.result.points, options.memory_bytes))
    ratio = point.time_s / least_s if least_s else 1.0
    return Compared(attempt.method, point, attempt.seconds, ratio, "")


def _fitting(points: Sequence[FrontierPoint], limit: int | None) -> Sequence[FrontierPoint]:
    """Return the points that fit; ``limit`` is the memory of a process."""
    fits = [point for point in points if point.fits(limit)]
    if not fits:
        raise UserError("nothing that it found fits the memory")
    return fits
