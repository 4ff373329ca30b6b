"""What the search charges against what plans cost: ``python bench/charges.py [MODELS] [--write]``.

The search knows costs by pairs of nodes (docs/decisions/0010-shared-tensors.md); the program that a
choice leads to pays each layout of a tensor once and holds what is alive. Over at most 60 points of
the frontier within 5%, per model and mesh: the largest charge in time over that of the program, the
number of points where they differ by more than rounding, and the least charge in memory over that
of the program. Models are those of bench/zoo.py on small meshes, and those of bench/graphs on 4 and
32 devices.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import zoo
from graphs.catalog import MODELS
from prepared import model_graph
from sections import write_section

from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.problem.evaluate import Evaluator
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["Charges", "charges"]

SMALL = ((2,), (2, 2), (2, 4))
LARGE = ((2, 2), (4, 8))
_POINTS = 60
_DEFAULT = ("bert_large", "transformer_big", "gpt3_13b", "llama3_8b", "inception_v3", "resnet152")
_HEAD = "| model | mesh | points | time, most | differ | memory, least |\n|---|---|---|---|---|---|"
_TEXT = """
## What the search charges, and what its plans cost

`python bench/charges.py --write`, device h200: the most by which the tables of the search
overcharge a point of the frontier, compared with its program; in how many points the two differ at
all; and the smallest part of the program's memory that the tables know of. Reported costs of a plan
are always those of its program.
"""


@dataclass(frozen=True)
class Charges:
    """Charge over cost, over the points that were compared."""

    points: int
    time_most: float
    time_differs: int
    memory_least: float


def charges(graph: Graph, mesh: Mesh, device: Device) -> Charges:
    """Search ``mesh`` within 5%, and cost what is found as programs."""
    tables = MeshTables(graph, mesh, device)
    evaluator, count = Evaluator(tables), len(tables.variables)
    points = solve_frontier(tables.problem, epsilon=0.05, time_limit_s=60).points
    some = points[:: -(-len(points) // _POINTS)]
    costs = [evaluator.evaluate(point.assignment[:count].tolist()) for point in some]
    times = [point.time / cost.time_s for point, cost in zip(some, costs, strict=True)]
    memories = [point.memory / cost.memory_bytes for point, cost in zip(some, costs, strict=True)]
    differ = sum(abs(ratio - 1) > 1e-9 for ratio in times)
    return Charges(len(some), max(times), differ, min(memories))


def _zoo_graph(name: str) -> Graph:
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        module = driver.load(zoo.provide(name, Path(folder)), zoo.DIMS.get(name, {}))
        driver.advance(module, "rules")
    return read_graph(module)


def _rows(names: Sequence[str], device: Device) -> Iterator[str]:
    for name in names:
        known = name in MODELS
        graph = model_graph(name) if known else _zoo_graph(name)
        for mesh in map(Mesh, LARGE if known else SMALL):
            row = charges(graph, mesh, device)
            ratios = f"{row.time_most:.4f} | {row.time_differs} | {row.memory_least:.3f}"
            yield f"| {name} | {mesh} | {row.points} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="charges", description=__doc__)
    names = [*zoo.NAMES, *MODELS]
    default = [*zoo.NAMES, *_DEFAULT]
    parser.add_argument("models", nargs="*", choices=[*names, []], default=[], metavar="MODEL")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    arguments = parser.parse_args()
    lines = [_HEAD]
    say = partial(print, flush=True)
    say(_HEAD)
    for line in _rows(arguments.models or default, load_device("h200")):
        say(line)
        lines.append(line)
    if arguments.write:
        write_section("charges", _TEXT + "\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
