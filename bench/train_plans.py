"""Plans that train a small model: points of the frontier, manual ZeRO plans, and random plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from graphs.trained import TRAINED
from search_graphs import training_spec

from tensoropt.compiler.comparison.data_parallel import data_parallel_choice
from tensoropt.compiler.comparison.pinning import fastest_with
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Argument, Op
from tensoropt.compiler.search.frontier.points import fastest, leanest, recompute_of
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    as_step,
    points_of,
)
from tensoropt.compiler.search.frontier.steps import read_graphs
from tensoropt.compiler.search.problem.clusters import Cluster
from tensoropt.compiler.search.problem.training_tables import TrainingTables, mesh_tables
from tensoropt.compiler.training.spec import RECOMPUTE
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "PLANS",
    "RECIPES",
    "Plan",
    "Recipe",
    "extremes",
    "one_device",
    "plans",
    "trained",
    "write_plan",
    "zero_point",
]


@dataclass(frozen=True)
class Recipe:
    """Optimizer and learning rate of a model."""

    optimizer: str
    learning_rate: float


RECIPES = {
    "cnn": Recipe("momentum", 0.02),
    "gpt2": Recipe("adamw", 1e-3),
    "gpt2_packed": Recipe("adamw", 1e-3),
    "llama": Recipe("adam", 1e-3),
    "vit": Recipe("adamw", 1e-3),
    "lstm": Recipe("sgd", 0.5),
}
assert RECIPES.keys() == TRAINED.keys()

PLANS = ("fastest", "leanest", "zero 1", "zero 3")
_EXTREMES = {"fastest": fastest, "leanest": leanest}


@dataclass(frozen=True)
class Plan:
    """A named plan, not yet written."""

    name: str
    recipe: Recipe
    request: Request
    result: FrontierResult
    point: FrontierPoint


def trained(path: Path, recipe: Recipe, recompute: str = "auto") -> driver.ir.Module:
    """Return the training step of the model in a file; with "auto", all recompute alternatives.

    It is for ranks on processors.
    """
    module = driver.load(path, {})
    driver.run_phase(module, "prepare")
    step = BuildTrainingStepPass.from_spec(training_spec(recipe.optimizer), recompute)
    driver.train(module, step.for_device(load_device("cpu")))
    return module


def extremes(devices: int) -> Request:
    """Return the request for the fastest and the leanest plan, which are exact."""
    return Request(devices, epsilon=1.0)


def plans(path: Path, recipe: Recipe, devices: int, names: Iterable[str]) -> Iterator[Plan]:
    """Yield the plans of these names: `fastest`, `leanest`, `zero 1`, `zero 3`, `random 0`, ...

    Searches run lazily, and the frontier is searched at most once.
    """
    module, request = trained(path, recipe), extremes(devices)
    frontier = cache(lambda: driver.frontier(module, request))
    for name in names:
        kind, _, number = name.partition(" ")
        if kind == "random":
            yield _random_plan(path, recipe, devices, int(number))
        elif kind == "zero":
            point = zero_point(module, devices, int(number), request.description)
            yield Plan(name, recipe, request, FrontierResult([point], None), point)
        else:
            yield Plan(name, recipe, request, frontier(), _EXTREMES[name](frontier().points))


def _random_plan(path: Path, recipe: Recipe, devices: int, seed: int) -> Plan:
    """Return a random plan; the seed selects the recompute mode, as a search takes one graph."""
    way = RECOMPUTE[seed % len(RECOMPUTE)]
    request = replace(extremes(devices), search="random", seed=seed)
    drawn = driver.frontier(trained(path, recipe, way), request)
    return Plan(f"random {seed}", recipe, request, drawn, drawn.points[0])


def one_device(path: Path, recipe: Recipe) -> Plan:
    """Return the plan for one device, without recomputation."""
    request = extremes(1)
    result = driver.frontier(trained(path, recipe, "none"), request)
    return Plan("fastest", recipe, request, result, fastest(result.points))


def write_plan(path: Path, plan: Plan, folder: Path) -> Path:
    """Write a plan of the model ``path`` below ``folder``; return its directory."""
    folder.mkdir(parents=True, exist_ok=True)
    directory = folder / plan.name.replace(" ", "-")
    module = trained(path, plan.recipe, recompute_of(plan.point))
    driver.settle(module, plan.point, plan.request, plan.result)
    driver.compile_plan(module, path, directory)
    return directory


def zero_point(module: driver.ir.Module, devices: int, stage: int, device: Device) -> FrontierPoint:
    """Return the plan that splits the batch, and moments (stages 1 and 2) or all state (3).

    Rajbhandari et al., arXiv 1910.02054. The mesh has one axis. Choices that neither pin decides
    are optimal. ``module`` is a step or all its alternatives; the first is used.
    """
    way, graph = next(iter(read_graphs(module).items()))
    tables = mesh_tables(graph, Mesh((devices,)), device)
    assert isinstance(tables, TrainingTables)
    batch = data_parallel_choice(tables.problem, tables)
    pins: dict[int, int] = {}
    for position, cluster in enumerate(tables.clusters):
        node = tables.graph.nodes[cluster.leader]
        if isinstance(node, Op):
            pins[position] = (
                _stored(tables, cluster, split=True) if node.held else int(batch[position])
            )
        elif isinstance(node, Argument) and node.state == "parameter":
            pins[position] = _stored(tables, cluster, split=stage == 3)
    choice = tables.decode(fastest_with(tables.problem, pins))
    points = as_step(FrontierResult(points_of(tables, choice), None), way).points
    return fastest(points)


def _stored(tables: TrainingTables, cluster: Cluster, *, split: bool) -> int:
    """Return the option with the smallest part of the first result, or with a whole copy."""
    info = tables.graph.values[tables.graph.nodes[cluster.leader].results[0]].info
    options = tables.options[cluster.leader]
    layouts = [options[number].results[0] for number in tables.kind(cluster).picks[:, 0]]
    sizes = [tensor_bytes(info, layout, tables.mesh) for layout in layouts]
    return sizes.index(min(sizes) if split else max(sizes))
