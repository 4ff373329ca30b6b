"""Gradients of element by element, moving, reducing and indexing ops split where the ops do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from training.harness import ints
from training.simulated import points, relative_error
from training.steps import build, spec_of
from training.test_splits import gathered

from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.clusters import clusters_of
from tensoropt.compiler.search.problem.following import follow
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

B, S, E = 4, 8, 16
Nodes = list[tuple[str, str, str, dict[str, Any]]]


def random(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32) / 4


def one(op: str, operands: str = "h", **attributes: Any) -> Nodes:
    return [(op, operands, "a", attributes)]


def behind(op: str, operands: str, **attributes: Any) -> Nodes:
    """Return an op with a Relu behind it."""
    return [(op, operands, "t", attributes), ("Relu", "t", "a", {})]


IMAGE: Nodes = [("Reshape", "h image", "t", {})]
SHAPE = {"image": ints(B, 8, 4, 4)}
PADS = {"pads": ints(0, 1, 0, 0, 2, 0)}

# Nodes from h (B, S, E) to a, and constants.
MODELS: dict[str, tuple[Nodes, dict[str, Any]]] = {
    **{op: (one(op), {}) for op in ("Relu", "Gelu", "HardSwish", "Selu", "Abs", "Mish")},
    "Add": (one("Add", "h b"), {"b": random(E)}),
    "Mul": (one("Mul", "h b"), {"b": random(S, E)}),
    "Div": (one("Div", "h b"), {"b": random(1, S, 1) + 2}),
    "PRelu": (one("PRelu", "h b"), {"b": random(E)}),
    "Max": (one("Max", "h b"), {"b": random(E)}),
    "Pow": (one("Pow", "h two"), {"two": np.array(2, np.float32)}),
    "Transpose": (behind("Transpose", "h", perm=[1, 0, 2]), {}),
    "Reshape to split": (behind("Reshape", "h s"), {"s": ints(B, S, 4, 4)}),
    "Reshape to merge": (behind("Reshape", "h s"), {"s": ints(B * S, E)}),
    "Expand": (one("Expand", "h s"), {"s": ints(3, B, S, E)}),
    "Tile": (one("Tile", "h s"), {"s": ints(1, 2, 1)}),
    "Slice": (one("Slice", "h from to axis"), {"from": ints(0), "to": ints(4), "axis": ints(1)}),
    "Split": (
        [("Split", "h", "p q", {"axis": 2, "num_outputs": 2}), *one("Concat", "q p", axis=2)], {}),
    "Pad": (one("Pad", "h pads"), PADS),
    "Pad reflect": (one("Pad", "h pads", mode="reflect"), PADS),
    "ReduceMean": (one("ReduceMean", "h s"), {"s": ints(1)}),
    "ReduceL2": (one("ReduceL2", "h s", keepdims=0), {"s": ints(-1)}),
    "ReduceLogSumExp": (one("ReduceLogSumExp", "h s"), {"s": ints(2)}),
    "ReduceProd": (one("ReduceProd", "h s"), {"s": ints(2)}),
    "Gather one": (one("Gather", "h z", axis=1), {"z": np.array(0, np.int64)}),
    "Gather": (one("Gather", "h z", axis=1), {"z": ints(0, 2, 2, 5)}),
    "GatherElements": (one("GatherElements", "h z", axis=1), {"z": np.zeros((B, 3, E), np.int64)}),
    "GatherND": (one("GatherND", "h z", batch_dims=1), {"z": np.array([[[0], [3]]] * B)}),
    "CumSum": (one("CumSum", "h z"), {"z": np.array(1, np.int64)}),
    "TopK": ([("TopK", "h z", "a places", {"axis": 1})], {"z": ints(2)}),
    "DepthToSpace": ([*IMAGE, ("DepthToSpace", "t", "u", {"blocksize": 2}),
                      ("Relu", "u", "a", {})], SHAPE),
    "Resize linear": (IMAGE + one("Resize", "t - - s", mode="linear"),
                      {**SHAPE, "s": ints(B, 8, 8, 6)}),
    "Resize nearest": (IMAGE + one("Resize", "t - - s", mode="nearest"),
                       {**SHAPE, "s": ints(B, 8, 8, 8)}),
    "ScatterND": (one("ScatterND", "h z u"), {"z": np.array([[0], [2]]), "u": random(2, S, E)}),
}  # fmt: skip


def step(folder: Path, name: str) -> ir.Module:
    """Return the step of a model that ends in the mean of the squares of a."""
    nodes, constants = MODELS[name]
    nodes = [("MatMul", "x w", "h", {}), *nodes, ("Mul", "a a", "y", {}),
             ("ReduceMean", "y", "l", {"keepdims": 0})]  # fmt: skip
    parts = [
        helper.make_node(
            op, given.replace("-", "").split(" "), results.split(), name=results, **held
        )
        for op, given, results, held in nodes
    ]
    graph = helper.make_graph(
        parts,
        "model",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [B, S, E])],
        [onnx.ValueInfoProto(name="l")],
        [numpy_helper.from_array(a, n) for n, a in {"w": random(E, E), **constants}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return build(path, spec_of("output:l"))


@pytest.mark.parametrize("name", MODELS)
def test_followers_gather_nothing(tmp_path: Path, name: str) -> None:
    """Along every loop of every op."""
    graph = read_graph(step(tmp_path, name))
    tried = 0
    for cluster in clusters_of(graph):
        leader = graph.nodes[cluster.leader]
        if not isinstance(leader, Op) or len(cluster.members) == 1:
            continue
        for role in axis_roles(leader.rule):
            assert gathered(graph, cluster.leader, cluster.members[1:], role) == []
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("name", ["Slice", "Pad reflect", "Gather", "GatherElements", "GatherND"])
def test_the_gradient_of_a_batch_is_split_with_it(tmp_path: Path, name: str) -> None:
    graph = read_graph(step(tmp_path, name))
    cluster = next(c for c in clusters_of(graph) if graph.nodes[c.leader].name == "a")
    members, last = cluster.members[1:], graph.op(cluster.members[-1])
    role = follow(graph, cluster.leader, members, 0)[-1]
    assert str(placements(last.rule, role)[1][0]) == "S(0)"


@pytest.mark.parametrize("name", ["Max", "Split", "Pad reflect", "Gather", "TopK", "Resize linear"])
def test_random_plans_compute_the_same_step(tmp_path: Path, name: str) -> None:
    (point,) = points(step(tmp_path, name), Mesh((2, 2)), seed=1)
    assert relative_error(lambda: step(tmp_path, name), point) < 1e-4
