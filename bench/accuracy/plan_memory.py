"""Memory in the tables of the search, compared with the memory of its plans.

    python bench/accuracy/plan_memory.py [MODELS] [--write]    benchmark models: tables and programs
    python bench/accuracy/plan_memory.py --plans 2000          small models: search and all plans
    python bench/accuracy/plan_memory.py --steps 200           the same for small training steps
    python bench/accuracy/plan_memory.py --graphs [MODELS]     default searches and their programs

For a model and a mesh, every point of a frontier within 2% (at most 60) is costed as a program,
before and after the tables are refined by the costs of programs
(docs/decisions/0044-cost-table-refinement.md). Reported are the smallest part of a program's memory
that the tables charge, the bound of the frontier in the memory of programs, the leanest program,
and the largest ratio of charged time to the time of the program.

``--plans`` searches that many random models with few plans, and ``--steps`` training steps, and
costs every plan of each. The exit status is 1 if a search missed a plan that no other dominates.

``--graphs`` searches every model as a user does who gives only a number of ``--devices``
(``--epsilon`` and ``--search-time`` as on the command line; training steps are named MODEL:train).
For each number it reports the largest and the mean difference in memory of a frontier's points in
the tables and as programs, over all meshes, and the printed bound.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import zoo
from graphs.catalog import MODELS
from graphs.trained import TRAINED
from search_graphs import model_graph, training_graph, training_spec
from sections import write_section

from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.anytime import Anytime
from tensoropt.compiler.search.frontier.candidate import Candidate
from tensoropt.compiler.search.frontier.lessons import Lessons, overhead_s, shortfalls
from tensoropt.compiler.search.frontier.options import SearchOptions, by_promise, distinct_meshes
from tensoropt.compiler.search.frontier.search import worst_bound
from tensoropt.compiler.search.problem.problem import TableFrontier, TablePoint
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Truth", "truths"]

TEST = Path(__file__).parents[2] / "test"
SMALL = ((2,), (2, 2), (2, 4))
LARGE = ((2, 2), (4, 8))
EPSILON = 0.02
ROUNDS = 5
_POINTS = 60
_SEARCH_S = 8.0
_DEFAULT = ("bert_large", "transformer_big", "gpt3_13b", "llama3_8b", "inception_v3", "resnet152")
_HEAD = (
    "| model | mesh | points | time, most | memory, least | bound | leanest, MiB |\n"
    "|---|---|---|---|---|---|---|"
)
_DIFFERENCE_HEAD = (
    "| model | devices | points | memory, most | mean | bound | leanest, MiB | cpu s |\n"
    "|---|---|---|---|---|---|---|---|"
)
_TEXT = """
## Memory in the tables of the search, and in its programs

`python bench/accuracy/plan_memory.py --write`, device h200, frontiers within 2%: the largest factor
by which the tables of the search overcharge the time of a point; the smallest part of a program's
memory that they charge; the bound of the frontier on the memory and time of programs, 2% included;
and the leanest program found. `a -> b` is before and after the tables are refined by the costs of
programs. Reported costs of a plan are always the costs of its program.
"""


@dataclass(frozen=True)
class Truth:
    """A frontier of tables, compared with the programs of its points."""

    points: int
    time_most: float
    memory_least: float
    bound: float
    leanest_bytes: int


def truths(graph: Graph, mesh: Mesh, device: Device) -> list[Truth]:
    """Search ``mesh`` with the initial tables, and again after each refinement."""
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
    """Return the comparison of points with programs, and the points with a shortfall.

    A point falls short if no costed program comes within EPSILON of it.
    """
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


@dataclass(frozen=True)
class Difference:
    """A search's points and their programs: relative differences in memory, and the bound."""

    points: int
    most: float
    mean: float
    bound: float | None
    leanest_bytes: int
    seconds: float


def difference(graph: Graph, devices: int, device: Device, options: SearchOptions) -> Difference:
    """Search all meshes of ``devices``; compare the last frontier of each mesh."""
    meshes = sorted(distinct_meshes(factorisations(devices), device), key=by_promise)
    candidates = [Candidate(mesh, partial(mesh_tables, graph, mesh, device)) for mesh in meshes]
    search = Anytime(candidates, options, lambda text: None)
    started = time.process_time()
    search.run()
    seconds = time.process_time() - started
    apart = [
        abs(1 - point.memory / evaluator_of(candidate.tables).evaluate(plan).memory_bytes)
        for candidate in search.searched
        for points in [candidate.results[-1].points]
        for point in points[:: -(-len(points) // _POINTS)]
        for plan in [candidate.tables.decode(point.assignment)]
    ]
    least = min(cost.memory_bytes for _, _, cost in search.plans.costed)
    mean = sum(apart) / len(apart)
    return Difference(len(apart), max(apart), mean, worst_bound(search.gaps), least, seconds)


def _difference_rows(
    names: Sequence[str], counts: Sequence[int], device: Device, options: SearchOptions
) -> Iterator[str]:
    for name in names:
        graph = _graph(name)
        for count in counts:
            found = difference(graph, count, device, options)
            bound = "none" if found.bound is None else f"{found.bound:.2%}"
            yield (
                f"| {name} | {count} | {found.points} | {found.most:.2%} | {found.mean:.2%} "
                f"| {bound} | {found.leanest_bytes / 2**20:.4g} | {found.seconds:.1f} |"
            )


def _graph(name: str) -> Graph:
    model, _, kind = name.partition(":")
    if kind:
        return _small_training(model) if model in TRAINED else training_graph(model)
    return model_graph(model) if model in MODELS else _zoo_graph(model)


def _small_training(name: str) -> Graph:
    """Return the training step of a small model of the tests."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        module = driver.load(TRAINED[name].build(name).save(Path(folder)), {})
        driver.run_phase(module, "prepare")
    driver.train(module, BuildTrainingStepPass.from_spec(training_spec()))
    return read_graph(module)


def _check_plans(count: int, *, steps: bool) -> int:
    """Search small models or steps, and cost all their plans; return the number of misses."""
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
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    steps = [f"{name}:train" for name in (*TRAINED, *MODELS)]
    names = [*zoo.NAMES, *MODELS, *steps]
    parser.add_argument("models", nargs="*", choices=[*names, []], default=[], metavar="MODEL")
    parser.add_argument(
        "--plans", type=int, default=0, help="number of small models to check instead"
    )
    parser.add_argument(
        "--steps", type=int, default=0, help="number of small training steps to check"
    )
    parser.add_argument("--graphs", action="store_true", help="default searches of models")
    parser.add_argument("--devices", type=int, nargs="+", default=[4, 8], help="for --graphs")
    parser.add_argument("--epsilon", type=float, help="for --graphs, instead of a time limit")
    parser.add_argument("--search-time", type=float, help="for --graphs, in seconds")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    arguments = parser.parse()
    if arguments.plans or arguments.steps:
        wrong = _check_plans(arguments.plans, steps=False)
        wrong += _check_plans(arguments.steps, steps=True)
        sys.exit(min(wrong, 1))
    if arguments.graphs:
        print(_DIFFERENCE_HEAD, flush=True)
        request = Request(epsilon=arguments.epsilon, search_time=arguments.search_time)
        limit_s = _SEARCH_S if request.anytime else request.search_time
        options = SearchOptions(
            epsilon=request.epsilon or 0.0, time_limit_s=limit_s, must_answer=True
        )
        models = arguments.models or [*zoo.CNNS, *zoo.TRANSFORMERS]
        for line in _difference_rows(models, arguments.devices, load_device("h200"), options):
            print(line, flush=True)
        return
    lines = [_HEAD]
    say = partial(print, flush=True)
    say(_HEAD)
    for line in _rows(arguments.models or [*zoo.NAMES, *_DEFAULT], load_device("h200")):
        say(line)
        lines.append(line)
    if arguments.write:
        write_section("charges", _TEXT + "\n" + "\n".join(lines))


if __name__ == "__main__":
    sys.exit(run_command(main))
