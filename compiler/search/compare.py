"""Several search methods on the same tables, side by side."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.errors import UserError
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.report.comparison import Compared
from tensoropt.compiler.report.points import fastest
from tensoropt.compiler.search.evaluate import Evaluator
from tensoropt.compiler.search.frontier import (
    FrontierPoint,
    SearchOptions,
    distinct_meshes,
    frontier_point,
    search_tables,
)
from tensoropt.compiler.search.ft import solve_min_time
from tensoropt.compiler.search.graph import read_graph
from tensoropt.compiler.search.tables import MeshTables
from tensoropt.dialects.mlir import ir

__all__ = ["compare_methods"]

Say = Callable[[str], None]


def compare_methods(
    module: ir.Module,
    meshes: Iterable[Mesh],
    device: Device,
    every: Sequence[SearchOptions],
    say: Say = lambda text: None,
) -> list[Compared]:
    """Return the fastest point of each method, its seconds, and its time over the least time.

    The tables are made before, once for all; the seconds are those of the search and of costing
    what it finds. Every point is costed as the graphs it leads to, the optimum too.
    """
    graph = read_graph(module)
    tables = [MeshTables(graph, mesh, device) for mesh in distinct_meshes(meshes, device)]
    least = min(_optimum(held, say).time_s for held in tables)
    rows = [_compared(tables, options, say) for options in every]
    return [_with_ratio(row, least) for row in rows]


def _optimum(tables: MeshTables, say: Say) -> FrontierPoint:
    say(f"tables of mesh {tables.mesh}")
    choice = solve_min_time(tables.problem).choice
    return frontier_point(Evaluator(tables), choice[: len(tables.variables)])


def _compared(tables: Sequence[MeshTables], options: SearchOptions, say: Say) -> Compared:
    """Return one row without its ratio; what a method refuses is said in the row."""
    if options.name == "random":
        tables = [random.Random(options.seed).choice(tables)]
    started = time.perf_counter()
    try:
        points = search_tables(tables, len(tables), options, lambda text: say(_of(options, text)))
        point = fastest(_fitting(points.points, options.memory_bytes))
    except UserError as error:
        refused = str(error).removeprefix(f"--search {options.name}: ")
        return Compared(options.name, None, time.perf_counter() - started, None, refused)
    return Compared(options.name, point, time.perf_counter() - started, None, "")


def _of(options: SearchOptions, text: str) -> str:
    return f"{options.name}: {text}"


def _fitting(points: Sequence[FrontierPoint], limit: int | None) -> Sequence[FrontierPoint]:
    fits = [p for p in points if limit is None or p.memory_bytes <= limit]
    if not fits:
        raise UserError("nothing that it found fits the memory")
    return fits


def _with_ratio(row: Compared, least_s: float) -> Compared:
    if row.point is None:
        return row
    ratio = row.point.time_s / least_s if least_s else 1.0
    return Compared(row.method, row.point, row.seconds, ratio, row.refused)
