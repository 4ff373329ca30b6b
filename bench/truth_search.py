"""What the search knows of memory, beside what its plans have: ``python bench/truth_search.py``.

    python bench/truth_search.py [MODELS] [--write]    benchmark models: the tables beside programs
    python bench/truth_search.py --plans 2000          small models: the search beside every plan
    python bench/truth_search.py --steps 200           the same for small training steps

Of a model and a mesh, every point of a frontier within 2% (at most 60) is costed as a program,
before the tables have learnt from programs and after (docs/decisions/0044-tables-learn.md): the
smallest part of a program's memory that the tables charge, the bound of the frontier in the memory
of programs, and the leanest program. The largest charge in time over that of the program is told
too. With ``--plans`` so many random models of few plans are searched, with ``--steps`` training
steps, and every plan of each is costed: ends with status 1 if the search missed one that no other
is better than.
"""

from __future__ import annotations

import argparse
import sys
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
from tensoropt.compiler.search.frontier.lessons import Lessons, overhead_s, shortfalls
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.search.problem.problem import TableFrontier, TablePoint
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError

__all__ = ["Truth", "truths"]

TEST = Path(__file__).parent.parent / "test"
SMALL = ((2,), (2, 2), (2, 4))
LARGE = ((2, 2), (4, 8))
EPSILON = 0.02
ROUNDS = 5
_POINTS = 60
_DEFAULT = ("bert_large", "transformer_big", "gpt3_13b", "llama3_8b", "inception_v3", "resnet152")
_HEAD = (
    "| model | mesh | points | time, most | memory, least | bound | leanest, MiB |\n"
    "|---|---|---|---|---|---|---|"
)
_TEXT = """
## What the search knows of memory, and what its plans have

`python bench/truth_search.py --write`, device h200, frontiers within 2%: the most by which the
tables of the search overcharge the time of a point; the smallest part of a program's memory that
they charge; by how much the frontier may miss the memory or time of programs, 2% included; and the
leanest program found. `a -> b` is before and after the tables learnt from programs. Reported costs
of a plan are always those of its program.
"""


@dataclass(frozen=True)
class Truth:
    """A frontier of tables beside the programs of its points."""

    points: int
    time_most: float
    memory_least: float
    bound: float
    leanest_bytes: int


def truths(graph: Graph, mesh: Mesh, device: Device) -> list[Truth]:
    """Search ``mesh`` as it is, and again while its tables learn."""
    lessons, costs = Lessons(MeshTables(graph, mesh, device)), list[tuple[float, float]]()
    found = []
    for _ in range(ROUNDS):
        frontier = solve_frontier(lessons.problem, epsilon=EPSILON, time_limit_s=60)
        some = frontier.points[:: -(-len(frontier.points) // _POINTS)]
        truth, short = _truth(lessons, frontier, some, costs)
        found.append(truth)
        if not lessons.learn(short):
            break
    return found


def _truth(
    lessons: Lessons,
    frontier: TableFrontier,
    some: Sequence[TablePoint],
    costs: list[tuple[float, float]],
) -> tuple[Truth, list[TablePoint]]:
    """Return how points compare with programs, and the points that none is as good as."""
    tables = lessons.tables
    paid = [lessons.cost(tables.decode(point.assignment))[0] for point in some]
    costs += [(cost.time_s, float(cost.memory_bytes)) for cost in paid]
    more_s = overhead_s(tables)
    factors = shortfalls(some, costs, more_s)
    pairs = list(zip(some, paid, strict=True))
    truth = Truth(
        len(some),
        max((point.time + more_s) / cost.time_s for point, cost in pairs),
        min(point.memory / cost.memory_bytes for point, cost in pairs),
        (1 + frontier.epsilon) * float(factors.max()) - 1,
        int(min(memory for _, memory in costs)),
    )
    short = [p for p, factor in zip(some, factors.tolist(), strict=True) if factor > 1 + EPSILON]
    return truth, short


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
            try:
                every = truths(graph, mesh, device)
            except UserError as error:
                yield f"| {name} | {mesh} | {error} |"
                continue
            first, last = every[0], every[-1]
            memory = f"{first.memory_least:.3f} -> {last.memory_least:.3f}"
            bound = f"{first.bound:.1%} -> {min(truth.bound for truth in every):.1%}"
            lean = f"{first.leanest_bytes / 2**20:.4g} -> {last.leanest_bytes / 2**20:.4g}"
            time = max(truth.time_most for truth in every)
            yield f"| {name} | {mesh} | {last.points} | {time:.4f} | {memory} | {bound} | {lean} |"


def _check_plans(count: int, *, steps: bool) -> int:
    """Search small models, or training steps, beside all their plans; return how many missed."""
    sys.path += [str(TEST), str(TEST / "search")]
    from small_models import every_cost, missed, small_tables
    from small_steps import every_step_cost, small_steps

    models = plans = wrong = seed = 0
    while models < count:
        found = small_steps([seed]) if steps else small_tables([seed])
        for tables in found.values():
            every = every_step_cost(tables) if steps else every_cost(tables)
            lacking = missed(tables, every)
            models, plans, wrong = models + 1, plans + len(every), wrong + bool(lacking)
            if lacking:
                print(f"seed {seed}: missed {lacking}", flush=True)
        seed += 1
    what = "training steps" if steps else "models"
    print(f"{models} {what}, {plans} plans: {wrong} with a plan that was missed", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [*zoo.NAMES, *MODELS]
    parser.add_argument("models", nargs="*", choices=[*names, []], default=[], metavar="MODEL")
    parser.add_argument("--plans", type=int, default=0, help="small models to check, and no others")
    parser.add_argument("--steps", type=int, default=0, help="small training steps to check")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    arguments = parser.parse_args()
    if arguments.plans or arguments.steps:
        wrong = _check_plans(arguments.plans, steps=False)
        wrong += _check_plans(arguments.steps, steps=True)
        sys.exit(min(wrong, 1))
    lines = [_HEAD]
    say = partial(print, flush=True)
    say(_HEAD)
    for line in _rows(arguments.models or [*zoo.NAMES, *_DEFAULT], load_device("h200")):
        say(line)
        lines.append(line)
    if arguments.write:
        write_section("charges", _TEXT + "\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
