"""Small random models with branches, in which tensors live across operations; all their plans."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from on_tensors import ON_TENSORS
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.frontier.search import SearchOptions, search_tables
from tensoropt.compiler.search.problem.problem import NodeTable, Problem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "MESHES",
    "best",
    "every_cost",
    "missed",
    "odd_module",
    "only",
    "plans",
    "random_module",
    "shared_weight_module",
    "small_tables",
    "tables_of",
]

MESHES = ((2,), (4,), (3,), (2, 2))
_WIDTHS = (4, 8, 12)


class _Model:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[object] = []
        self.stored: list[object] = []
        self.shapes: dict[str, tuple[int, int]] = {}
        self.used: dict[str, int] = {}

    def build(self, path: Path) -> None:
        rows = int(self.rng.choice((4, 6, 12)))
        for number in range(int(self.rng.integers(1, 3))):
            self.shapes[f"x{number}"] = (rows, int(self.rng.choice(_WIDTHS)))
        inputs = list(self.shapes)
        for _ in range(int(self.rng.integers(2, 6))):
            self.grow()
        left = [name for name in self.shapes if name not in self.used and name not in inputs]
        graph = helper.make_graph(
            self.nodes,
            "small",
            [self.info(name) for name in inputs],
            [self.info(name) for name in left],
            self.stored,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        path.write_bytes(model.SerializeToString())

    def info(self, name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])

    def take(self, shape: tuple[int, int] | None = None) -> str | None:
        """Pick a tensor of at most two uses so far, the newest most often."""
        fit = [n for n, s in self.shapes.items() if s == (shape or s) and self.used.get(n, 0) < 3]
        if not fit:
            return None
        return fit[-1] if self.rng.random() < 0.5 else str(self.rng.choice(fit))

    def add(self, kind: str, read: Sequence[str], shape: tuple[int, int], **own: object) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(read), [name], name, **own))
        for one in set(read) & self.shapes.keys():
            self.used[one] = self.used.get(one, 0) + 1
        self.shapes[name] = shape

    def grow(self) -> None:
        one = self.take()
        if one is None:
            return
        rows, width = self.shapes[one]
        kind = self.rng.choice(("Relu", "Softmax", "MatMul", "MatMul", "Add", "Add", "Concat"))
        if kind == "MatMul":
            wide = int(self.rng.choice(_WIDTHS))
            weight = f"w{len(self.nodes)}"
            values = self.rng.random((width, wide), dtype=np.float32)
            self.stored.append(numpy_helper.from_array(values, weight))
            self.add("MatMul", [one, weight], (rows, wide))
        elif kind in ("Add", "Concat"):
            other = self.take((rows, width))
            if other is None or other == one:
                return
            if kind == "Add":
                self.add("Add", [one, other], (rows, width))
            elif width <= 12:
                self.add("Concat", [one, other], (rows, 2 * width), axis=1)
        else:
            self.add(str(kind), [one], (rows, width), **({"axis": -1} if kind == "Softmax" else {}))


def random_module(seed: int) -> ir.Module:
    """Return the model of a seed, with the rules of its operations."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-small-") as folder:
        path = Path(folder) / "small.onnx"
        _Model(seed).build(path)
        return _imported(path)


def shared_weight_module(width: int = 8) -> ir.Module:
    """Return a model that adds a weight and multiplies by it: it may be read in two layouts."""
    weight = numpy_helper.from_array(np.ones((width, width), np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["t"], "add"),
            helper.make_node("MatMul", ["t", "w"], ["y"], "product"),
        ],
        "shared",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (width, width))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (width, width))],
        [weight],
    )
    return _module(graph)


def odd_module() -> ir.Module:
    """Return a model that adds a weight of 63 elements, whose parts on 4 ranks have padding."""
    weight = numpy_helper.from_array(np.ones(63, np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (63,)) for name in "xy"]
    node = helper.make_node("Add", ["x", "w"], ["y"], "add")
    graph = helper.make_graph([node], "odd", ends[:1], ends[1:], [weight])
    return _module(graph)


def _module(graph: onnx.GraphProto) -> ir.Module:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with tempfile.TemporaryDirectory(prefix="tensoropt-small-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return _imported(path)


def _imported(path: Path) -> ir.Module:
    with driver.new_context():
        module = import_model(path)
    driver.advance(module, "rules")
    return module


def small_tables(seeds: Iterable[int], most_plans: int = 4000) -> dict[int, MeshTables]:
    """Return the tables of the models of ``seeds`` that have some plans, but not too many."""
    every = {seed: tables_of(random_module(seed), Mesh(MESHES[seed % 4])) for seed in seeds}
    return {seed: own for seed, own in every.items() if 1 < plans(own) <= most_plans}


def tables_of(module: ir.Module, mesh: Mesh) -> MeshTables:
    """Return the tables of a model on one mesh of processors."""
    return MeshTables(read_graph(module), mesh, ON_TENSORS)


def plans(tables: MeshTables) -> int:
    """Return how many plans there are."""
    return math.prod(len(tables.options[node]) for node in tables.variables)


def best(costs: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the costs that none is better than in both, sorted by time; 1e-9 of it is nothing."""
    kept: list[tuple[float, int]] = []
    for time_s, memory_bytes in sorted(costs):
        if kept and memory_bytes >= kept[-1][1]:
            continue
        if kept and time_s <= kept[-1][0] * (1 + 1e-9):
            kept.pop()
        kept.append((time_s, memory_bytes))
    return kept


def every_cost(tables: MeshTables) -> dict[tuple[int, ...], tuple[float, int]]:
    """Return seconds and bytes of every plan, as its program has them."""
    evaluator = Evaluator(tables)
    sizes = [range(len(tables.options[node])) for node in tables.variables]
    costs = ((plan, evaluator.evaluate(plan)) for plan in itertools.product(*sizes))
    return {plan: (cost.time_s, cost.memory_bytes) for plan, cost in costs}


def missed(
    tables: MeshTables, every: Mapping[tuple[int, ...], tuple[float, int]]
) -> list[tuple[float, int]]:
    """Return the costs, of those of ``every`` plan, that the search lacks though none is better."""
    points = search_tables([tables], SearchOptions()).points
    found = [(point.time_s, point.memory_bytes) for point in points]
    return [
        (time_s, memory)
        for time_s, memory in best(every.values())
        if not any(t <= time_s * (1 + 1e-9) and m <= memory for t, m in found)
    ]


def only(problem: Problem, plan: tuple[int, ...]) -> Problem:
    """Return the problem with one option each for its first nodes."""
    nodes = list(problem.nodes)
    for index, picked in enumerate(plan):
        time_s = np.full(len(nodes[index].time_s), np.inf)
        time_s[picked] = nodes[index].time_s[picked]
        nodes[index] = NodeTable(time_s, nodes[index].static_bytes, nodes[index].transient_bytes)
    return Problem(nodes, problem.edges)
