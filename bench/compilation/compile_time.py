"""Time the whole compilation of the benchmark models, from the ONNX file to the frontier.

    python bench/compilation/compile_time.py           every model on 4, 8, 16, 64 devices
    python bench/compilation/compile_time.py gpt3_13b --devices 64 --epsilon 0.05 0.02

There is one mesh per number of devices, as square as possible: 2x2, 2x4, 4x4, 8x8. Every phase is
timed in a process that has imported everything. `tables` includes reading the graph; `points` is
the costing of up to 100 points as the programs that they lead to. `cpu` is the processor time of
all phases, with both threads of the search: the figure to read on a busy machine. The epsilon that
the search reached exceeds the requested epsilon if --limit ran out. `scaling.py` prints times by
the number of layers.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from graphs.catalog import MODELS

from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.search import frontier_point
from tensoropt.compiler.search.problem.problem import TableFrontier
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Row", "compile_model", "square", "warm_up"]

_POINTS = 100

T = TypeVar("T")
Clock = Callable[[], float]


@dataclass
class Row:
    """A compilation; times in seconds."""

    model: str
    mesh: str
    asked: float
    nodes: int = 0
    variables: int = 0
    distinct: int = 0
    import_s: float = 0.0
    prepare_s: float = 0.0
    tables_s: float = 0.0
    search_s: float = 0.0
    points_s: float = 0.0
    cpu_s: float = 0.0
    points: int = 0
    reached: float = math.nan
    failure: str = ""

    @property
    def ready_s(self) -> float:
        return self.import_s + self.prepare_s + self.tables_s

    @property
    def whole_s(self) -> float:
        return self.ready_s + self.search_s + self.points_s


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "model": lambda row: f"{row.model:18}",
    "mesh": lambda row: f"{row.mesh:>5}",
    "nodes": lambda row: f"{row.nodes:6}",
    "variables": lambda row: f"{row.variables:9}",
    "distinct": lambda row: f"{row.distinct:8}",
    "import s": lambda row: f"{row.import_s:8.2f}",
    "prepare s": lambda row: f"{row.prepare_s:9.2f}",
    "tables s": lambda row: f"{row.tables_s:8.2f}",
    "search s": lambda row: f"{row.search_s:8.2f}",
    "points s": lambda row: f"{row.points_s:8.2f}",
    "whole s": lambda row: f"{row.whole_s:8.2f}",
    "cpu s": lambda row: f"{row.cpu_s:7.2f}",
    "points": lambda row: f"{row.points:6}",
    "epsilon": lambda row: f"{row.asked:7.2%}",
    "reached": lambda row: f"{row.reached:7.2%}",
}


def square(devices: int) -> Mesh:
    """Return the mesh of two axes for ``devices`` with the most similar extents."""
    first = next(n for n in range(math.isqrt(devices), 0, -1) if devices % n == 0)
    return Mesh((first, devices // first))


def compile_model(
    path: Path,
    mesh: Mesh,
    device: Device,
    epsilons: list[float],
    limit_s: float,
    clock: Clock = time.perf_counter,
) -> Iterator[Row]:
    """Compile the model once, search it for each epsilon, and yield the times."""
    row, started = Row(path.stem, str(mesh), 0.0), time.process_time()
    module, row.import_s = _timed(clock, lambda: driver.load(path, {}))
    _, row.prepare_s = _timed(clock, lambda: driver.advance(module, "rules"))
    (graph, tables), row.tables_s = _timed(clock, lambda: _tables(module, mesh, device))
    row.nodes = sum(isinstance(node, Op) for node in graph.nodes)
    row.variables = len(tables.problem.nodes)
    row.distinct = len({id(table) for table in tables.problem.nodes})
    row.cpu_s = time.process_time() - started
    for epsilon in epsilons:
        yield _searched(replace(row, asked=epsilon), tables, limit_s, clock)


def _tables(module: Any, mesh: Mesh, device: Device) -> tuple[Graph, MeshTables]:
    graph = read_graph(module)
    tables = MeshTables(graph, mesh, device)
    _ = tables.problem
    return graph, tables


def _searched(row: Row, tables: MeshTables, limit_s: float, clock: Clock) -> Row:
    started, cpu = clock(), time.process_time()
    try:
        found = solve_frontier(tables.problem, epsilon=row.asked, time_limit_s=limit_s)
    except UserError as error:
        row.failure, row.search_s = str(error), clock() - started
        return row
    row.search_s = clock() - started
    _, row.points_s = _timed(clock, lambda: _cost(tables, found))
    row.cpu_s += time.process_time() - cpu
    row.points, row.reached = len(found.points), found.epsilon
    return row


def _cost(tables: MeshTables, found: TableFrontier) -> None:
    chosen = len(tables.variables)
    step = max(1, math.ceil(len(found.points) / _POINTS))
    for point in found.points[::step]:
        frontier_point(tables, point.assignment[:chosen])


def _timed(clock: Clock, make: Callable[[], T]) -> tuple[T, float]:
    started = clock()
    made = make()
    return made, clock() - started


def _rows(given: argparse.Namespace, folder: Path) -> Iterator[Row]:
    device = load_device(given.device)
    for name in given.models or MODELS:
        path = MODELS[name].build(name).save(folder)
        for count in given.devices:
            yield from compile_model(path, square(count), device, given.epsilon, given.limit)


def main() -> None:
    given = _parser().parse()
    warm_up(given.device)
    print(" | ".join(f"{title:>{len(_filler(title))}}" for title in _COLUMNS), flush=True)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        for row in _rows(given, Path(folder)):
            print(" | ".join(text(row) for text in _COLUMNS.values()), flush=True)
            if row.failure:
                print(f"    {row.failure}", flush=True)


def _filler(title: str) -> str:
    """Return a cell of a column, for its width."""
    return _COLUMNS[title](Row("", "", 0.0))


def warm_up(device: str) -> None:
    """Compile a small model, so that no row includes the time of imports."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        model: Any = replace(MODELS["gpt3_13b"], layers=1)  # type: ignore[type-var]
        path = model.build("warm").save(Path(folder))
        list(compile_model(path, Mesh((2,)), load_device(device), [0.5], 1.0))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--devices", type=int, nargs="+", default=[4, 8, 16, 64])
    parser.add_argument("--device", default="h200", help="type of the devices, as in tensoropt-opt")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.05, 0.02])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each search")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
