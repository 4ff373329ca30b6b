"""Plans that train a small model: points of the frontier, ZeRO by hand, and random ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graphs.trained import TRAINED
from prepared import training_spec

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.pipeline.request import Chosen, Request
from tensoropt.compiler.pipeline.training_steps import StepPoint, build_step
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult, frontier_point
from tensoropt.compiler.search.methods.data_parallel import data_parallel_choice
from tensoropt.compiler.search.methods.pinning import fastest_with
from tensoropt.compiler.search.problem.clusters import Cluster
from tensoropt.compiler.search.problem.evaluate import Evaluator
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.search.problem.tables import tensor_bytes
from tensoropt.compiler.search.problem.training_tables import TrainingTables, mesh_tables
from tensoropt.compiler.training.spec import RECOMPUTE

__all__ = ["RECIPES", "Plan", "Recipe", "plans", "prepared", "write_plan", "zero_point"]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    optimizer: str
    learning_rate: float


RECIPES = {
    "cnn": Recipe("momentum", 0.02),
    "gpt2": Recipe("adamw", 1e-3),
    "llama": Recipe("adam", 1e-3),
    "vit": Recipe("adamw", 1e-3),
    "lstm": Recipe("sgd", 0.5),
}
assert RECIPES.keys() == TRAINED.keys()


@dataclass(frozen=True)
class Plan:
    """A plan by name, not written yet."""

    name: str
    request: Request
    result: FrontierResult
    point: FrontierPoint


def prepared(path: Path) -> driver.ir.Module:
    """Return the forward graph of a file, ready for the search."""
    module = driver.load(path, {})
    driver.run_phase(module, "prepare")
    return module


def request_of(recipe: Recipe, devices: int, recompute: tuple[str, ...] = RECOMPUTE) -> Request:
    """Return what is asked for: the extremes of steps that differ in what they compute anew."""
    spec = training_spec(recipe.optimizer)
    steps = [replace(spec, recompute=way) for way in recompute]
    return Request(load_device("cpu"), "cpu", devices, training=steps).extremes


def plans(path: Path, recipe: Recipe, devices: int, randoms: int, seed: int = 0) -> Iterator[Plan]:
    """Yield the fastest and the leanest plan, ZeRO of stages 1 and 3, and random ones."""
    module, request = prepared(path), request_of(recipe, devices)
    result = driver.frontier(module, request)
    for name, pick in (("fastest", fastest), ("leanest", leanest)):
        yield Plan(name, request, result, pick(result.points))
    for stage in (1, 3):
        point = zero_point(module, request, stage)
        yield Plan(f"zero {stage}", request, FrontierResult([point], None), point)
    for number in range(seed, seed + randoms):
        # Every way to recompute in turn: a random search takes one graph.
        way = RECOMPUTE[number % len(RECOMPUTE)]
        own = replace(request_of(recipe, devices, (way,)), search="random", seed=number)
        drawn = driver.frontier(module, own)
        yield Plan(f"random {number}", own, drawn, drawn.points[0])


def write_plan(path: Path, plan: Plan, folder: Path) -> Path:
    """Write a plan of the model ``path`` below ``folder``; return its directory."""
    folder.mkdir(parents=True, exist_ok=True)
    directory = folder / plan.name.replace(" ", "-")
    chosen = Chosen(path, plan.request, plan.result, plan.point)
    driver.compile_plan(prepared(path), chosen, directory, lambda text: None)
    return directory


def zero_point(module: driver.ir.Module, request: Request, stage: int) -> StepPoint:
    """Return the plan that splits the batch, and moments (stage 1 and 2) or all state (3).

    Rajbhandari et al., arXiv 1910.02054. On one axis; what neither decides is chosen best.
    """
    step = build_step(module, request.training[0])
    tables = mesh_tables(read_graph(step), Mesh((request.devices,)), request.device)
    assert isinstance(tables, TrainingTables)
    batch = data_parallel_choice(tables.problem, tables)
    pins: dict[int, int] = {}
    for position, cluster in enumerate(tables.clusters):
        node = tables.graph.nodes[cluster.leader]
        if node.held or node.state == "parameter":
            pins[position] = _stored(tables, cluster, split=node.held or stage == 3)
        elif node.kind == "op":
            pins[position] = int(batch[position])
    choice = tables.decode(fastest_with(tables.problem, pins))
    point = frontier_point(Evaluator(tables), choice)
    return StepPoint(**{**vars(point), "recompute": request.training[0].recompute})


def _stored(tables: TrainingTables, cluster: Cluster, *, split: bool) -> int:
    """Return the option with the smallest part of the first result, or with all of it."""
    info = tables.graph.values[tables.graph.nodes[cluster.leader].results[0]].info
    options = tables.options[cluster.leader]
    layouts = [options[number].results[0] for number in tables.kind(cluster).picks[:, 0]]
    sizes = [tensor_bytes(info, layout, tables.mesh) for layout in layouts]
    return sizes.index(min(sizes) if split else max(sizes))
