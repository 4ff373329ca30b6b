"""Small random training steps, and what all their plans cost."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from on_tensors import ON_TENSORS
from training.steps import Node, build, model_of, spec_of

from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.training_tables import TrainingTables
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["EVEN", "ODD", "Sizes", "every_step_cost", "random_step", "small_steps", "step_plans"]

MESHES = ((2,), (4,), (3,))
_OPTIMIZERS = ("sgd", "momentum", "sgd", "adamw")

Sizes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
EVEN: Sizes = (4, 6, 12), (4, 12), (4, 8, 12)
"""Of the rows and columns of the input, and of the columns of weights."""
ODD: Sizes = (5, 6, 11, 23), (11, 24), (5, 8, 11, 23)
"""The same where most of them are padded to be split."""


def random_step(seed: int, sizes: Sizes = EVEN) -> ir.Module:
    """Return the training step of a random model, with the rules of its operations."""
    rng = np.random.default_rng(seed)
    rows_of, columns_of, wide_of = sizes
    shapes = {"x": (int(rng.choice(rows_of)), int(rng.choice(columns_of)))}
    inputs = {"x": np.zeros(shapes["x"], np.float32)}
    weights: dict[str, np.ndarray] = {}
    nodes: list[Node] = []
    for number in range(int(rng.integers(1, 4))):
        one = list(shapes)[-1]  # so that the loss depends on all
        rows, width = shapes[one]
        kind = "MatMul" if not weights else str(rng.choice(("MatMul", "Relu", "Add", "Mul")))
        name, read = f"t{number}", [one]
        if kind == "MatMul":
            wide = int(rng.choice(wide_of))
            weights[f"w{number}"] = rng.standard_normal((width, wide)).astype(np.float32)
            read, width = [one, f"w{number}"], wide
        elif kind != "Relu":
            alike = [other for other, shape in shapes.items() if shape == (rows, width)]
            read = [one, str(rng.choice(alike))]
        nodes.append((kind, read, name, {}))
        shapes[name] = rows, width
    last = nodes[-1][2]
    nodes.append(("ReduceSum", [last], "l", {"keepdims": 0}))
    with tempfile.TemporaryDirectory(prefix="tensoropt-small-") as folder:
        path = Path(folder) / "small.onnx"
        path.write_bytes(model_of(nodes, inputs, ["l"], weights).SerializeToString())
        return build(path, spec_of("output:l", str(rng.choice(_OPTIMIZERS))))


def small_steps(seeds: Iterable[int], most_plans: int = 20000) -> dict[int, TrainingTables]:
    """Return the tables of the steps of ``seeds`` that have some plans, but not too many."""
    found = {}
    for seed in seeds:
        graph, mesh = read_graph(random_step(seed)), Mesh(MESHES[seed % len(MESHES)])
        tables = TrainingTables(graph, mesh, ON_TENSORS)
        if 1 < step_plans(tables) <= most_plans:
            found[seed] = tables
    return found


def step_plans(tables: TrainingTables) -> int:
    """Return how many plans there are."""
    return math.prod(len(tables.kind(cluster).picks) for cluster in tables.clusters)


def every_step_cost(tables: TrainingTables) -> dict[tuple[int, ...], tuple[float, int]]:
    """Return seconds and bytes of every plan, as its program has them."""
    assert tables.learns
    evaluator, found = Evaluator(tables), dict[tuple[int, ...], tuple[float, int]]()
    sizes = [range(len(tables.kind(cluster).picks)) for cluster in tables.clusters]
    for plan in itertools.product(*sizes):
        cost = evaluator.evaluate(tables.decode(np.array(plan, dtype=np.int32)))
        found[plan] = cost.time_s, cost.memory_bytes
    return found
