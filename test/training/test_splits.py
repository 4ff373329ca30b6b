"""Gradients of products, attention, recurrence and losses split where the forward op does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from training.simulated import points, relative_error
from training.steps import build, spec_of

from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.clusters import clusters_of
from tensoropt.compiler.search.problem.following import follow
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.layout import Placement
from tensoropt.runtime.layout.mesh import Mesh

B, S, H, D, E = 4, 8, 4, 8, 16
FLOAT, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
Nodes = list[tuple[str, list[str], str, dict[str, Any]]]


def random(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32) / 8


def projected(*names: str) -> Nodes:
    return [("MatMul", ["x", f"w{name}"], name, {}) for name in names]


OUT: Nodes = [("MatMul", ["a", "wo"], "y", {})]
LSTM = ["x", "w", "r", "b"]

# Nodes, weights, and the loss; the input is (B, S, E), for the recurrent ones (S, B, E).
MODELS: dict[str, tuple[Nodes, dict[str, Any], str]] = {
    "products": (
        [("MatMul", ["x", "w"], "a", {}), *OUT],
        {"w": random(E, 2 * E), "wo": random(2 * E, E)},
        "softmax-cross-entropy:y,labels",
    ),
    "attention": (
        [
            *projected("q", "k", "v"),
            ("Attention", ["q", "k", "v"], "a", {"q_num_heads": H, "kv_num_heads": 2,
                                                 "is_causal": 1}),
            *OUT,
        ],
        {"wq": random(E, H * D), "wk": random(E, 2 * D), "wv": random(E, 2 * D),
         "wo": random(H * D, E)},
        "softmax-cross-entropy:y,labels",
    ),
    "rotary": (
        [
            *projected("q"),
            ("RotaryEmbedding", ["q", "cos", "sin", "places"], "r", {"num_heads": H}),
            ("Attention", ["r", "r", "q", "mask"], "a", {"q_num_heads": H, "kv_num_heads": H}),
            *OUT,
        ],
        {"wq": random(E, H * D), "cos": random(S, D // 2), "sin": random(S, D // 2),
         "places": np.tile(np.arange(S), (B, 1)), "mask": random(B, 1, S, S),
         "wo": random(H * D, E)},
        "mse:y,target",
    ),
    "lstm": (
        [("LSTM", LSTM, "h", {"hidden_size": D}), ("Squeeze", ["h", "one"], "a", {}), *OUT],
        {"w": random(1, 4 * D, E), "r": random(1, 4 * D, D), "b": random(1, 8 * D),
         "one": np.array([1]), "wo": random(D, E)},
        "softmax-cross-entropy:y,labels",
    ),
    "gru": (
        [("GRU", LSTM, "h", {"hidden_size": D}), ("Squeeze", ["h", "one"], "a", {}), *OUT],
        {"w": random(1, 3 * D, E), "r": random(1, 3 * D, D), "b": random(1, 6 * D),
         "one": np.array([1]), "wo": random(D, E)},
        "mse:y,target",
    ),
}  # fmt: skip


def step(folder: Path, name: str) -> ir.Module:
    """Return the training step of a model."""
    nodes, weights, loss = MODELS[name]
    shape = [S, B, E] if name in ("lstm", "gru") else [B, S, E]
    graph = helper.make_graph(
        [helper.make_node(op, given, [y], name=y, **held) for op, given, y, held in nodes],
        name,
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return build(path, spec_of(loss))


@pytest.mark.parametrize("mesh", [Mesh((2,)), Mesh((2, 2))], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_random_plans_compute_the_same_step(tmp_path: Path, name: str, mesh: Mesh) -> None:
    (point,) = points(step(tmp_path, name), mesh, seed=mesh.size)
    assert relative_error(lambda: step(tmp_path, name), point) < 1e-4


def placed(graph: Graph, index: int, choice: AxisRole) -> Iterator[tuple[int, Placement, bool]]:
    """Yield each value that an op reads or makes, how it lies, and whether the op makes it."""
    node = graph.op(index)
    operands, results = placements(node.rule, choice)
    for value, placement in zip(node.operands, operands, strict=False):
        if value is not None and value not in graph.storage.constants:
            yield value, placement, False
    for value, placement in zip(node.results, results, strict=True):
        yield value, placement, True


def gathered(graph: Graph, leader: int, members: list[int], choice: AxisRole) -> list[str]:
    """Return the followers that read a value split otherwise than it lies."""
    held: dict[int, Placement] = {}
    for value, placement, _ in placed(graph, leader, choice):
        held.setdefault(value, placement)
    found = []
    for index, own in zip(members, follow(graph, leader, members, choice), strict=True):
        if not isinstance(graph.nodes[index], Op) or graph.nodes[index].constant:
            continue
        for value, placement, made in placed(graph, index, own):
            lies = held.setdefault(value, placement)
            if not made and lies.is_split and lies != placement:
                found.append(graph.nodes[index].name)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_followers_gather_nothing(tmp_path: Path, name: str) -> None:
    """Along every loop of every op but the units of a recurrence, whose steps exchange them."""
    graph = read_graph(step(tmp_path, name))
    tried = 0
    for cluster in clusters_of(graph):
        leader = graph.nodes[cluster.leader]
        if not isinstance(leader, Op) or len(cluster.members) == 1:
            continue
        for choice in axis_roles(leader.rule):
            if "Recurrence" in leader.name and choice != 0:
                continue
            assert gathered(graph, cluster.leader, cluster.members[1:], choice) == [], leader.name
            tried += 1
    assert tried > 20
