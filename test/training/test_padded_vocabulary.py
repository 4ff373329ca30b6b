"""A step with a vocabulary that ranks do not divide: table, scores and loss in padded parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharding.spmd import run_spmd
from training.simulated import points, relative_error
from training.steps import build, model_of, spec_of

from tensoropt.compiler.pipeline.driver import run_phase
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.sharding.proof.parts import cut
from tensoropt.compiler.training.cut import cut_step
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import layout_of
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.mesh import Mesh

WORDS, WIDTH, BATCH, LENGTH = 101, 4, 2, 3
RNG = np.random.default_rng(0)


def _language_model(folder: Path) -> Path:
    """Write one whose scores are made with the table of its embedding."""
    nodes = [
        ("Gather", ["table", "ids"], "x", {}),
        ("Relu", ["x"], "y", {}),
        ("Transpose", ["table"], "turned", {"perm": [1, 0]}),
        ("MatMul", ["y", "turned"], "scores", {}),
    ]
    table = np.random.default_rng(0).standard_normal((WORDS, WIDTH)).astype(np.float32)
    path = folder / "language.onnx"
    inputs = {"ids": np.zeros((BATCH, LENGTH), np.int64)}
    path.write_bytes(model_of(nodes, inputs, ["scores"], {"table": table}).SerializeToString())
    return path


def _scaled_features(folder: Path) -> Path:
    """Write one of whose scale the gradient is no number where the scale is none."""
    nodes = [
        ("Mul", ["x", "scale"], "y", {}),
        ("ReduceSumSquare", ["y"], "l", {"keepdims": 0}),
    ]
    path, scale = folder / "scaled.onnx", np.ones(WORDS, np.float32)
    inputs = {"x": np.zeros((BATCH, WORDS), np.float32)}
    path.write_bytes(model_of(nodes, inputs, ["l"], {"scale": scale}).SerializeToString())
    return path


def _make(path: Path) -> ir.Module:
    loss = "softmax-cross-entropy:scores,labels"
    return build(path, spec_of(loss, "adamw", clip_norm=0.5, weight_decay=0.1))


def _is_split(point: FrontierPoint, name: str, dim: int) -> bool:
    """Say whether dimension ``dim`` of the first result of a node is split."""
    graph = point.tables.graph
    index = next(i for i, node in enumerate(graph.nodes) if name in node.name)
    return bool(point.strategies[index].results[0].axes_splitting(dim))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_of_the_loss_is_over_parts(ranks: int, tmp_path: Path) -> None:
    path, mesh = _language_model(tmp_path), Mesh((ranks,))
    found = (p for seed in range(99) for p in points(_make(path), mesh, seed=seed))
    point = next(p for p in found if _is_split(p, "LogSoftmax", 2))
    assert relative_error(lambda: _make(path), point, WORDS) < 1e-4


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_finite_whatever_padding_holds(ranks: int, tmp_path: Path) -> None:
    path, mesh = _scaled_features(tmp_path), Mesh((ranks,))
    step = build(path, spec_of("output:l"))
    found = (p for seed in range(999) for p in points(step, mesh, seed=seed))
    split = {"scale": 0, "y": 1, "l.grad.Mul_1": 1, "y.grad.ReduceSum": 0, "scale.grad": 0}
    point = next(p for p in found if all(_is_split(p, *place) for place in split.items()))
    annotate(step, point, "cpu")
    run_phase(step, "reshard")
    fed = {
        own["topt.name"].value: cut(_drawn(value.type), layout_of(own["topt.layout"]), mesh, RNG)
        for value, own in onnx.arguments(onnx.function(step))
    }
    run_phase(step, "partition")
    part = cut_step(step).modules["gradients"]
    parts = [fed[own["topt.name"].value] for _, own in onnx.arguments(onnx.function(part))]
    results = run_spmd(part, [[held[rank] for held in parts] for rank in range(ranks)], mesh)
    assert any(len(array) == -(-WORDS // ranks) for array in results[0] if array.ndim)
    assert all(np.isfinite(array).all() for rank in results for array in rank)


def _drawn(kind: ir.Type) -> np.ndarray[Any, Any]:
    tensor = ir.RankedTensorType(kind)
    if isinstance(tensor.element_type, ir.IntegerType):
        return RNG.integers(0, WORDS, list(tensor.shape))
    return np.asarray(RNG.standard_normal(list(tensor.shape)), np.float32)
