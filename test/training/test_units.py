"""A step with heads that ranks do not divide: weights, gradients and moments have whole heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.simulated import points, relative_error
from training.steps import build, model_of, spec_of

from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

HEADS, SIZE = 5, 2
WIDTH = HEADS * SIZE


def _model(folder: Path) -> Path:
    """Write two projections, a product of their heads, and one that joins these."""
    rng, apart = np.random.default_rng(0), np.array([0, 0, HEADS, SIZE])
    nodes = [
        ("MatMul", ["x", "wq"], "q0", {}),
        ("MatMul", ["x", "wk"], "k0", {}),
        ("Reshape", ["q0", "apart"], "q1", {}),
        ("Reshape", ["k0", "apart"], "k1", {}),
        ("Transpose", ["q1"], "q", {"perm": [0, 2, 1, 3]}),
        ("Transpose", ["k1"], "k", {"perm": [0, 2, 3, 1]}),
        ("MatMul", ["q", "k"], "s", {}),
        ("Softmax", ["s"], "p", {}),
        ("MatMul", ["p", "q"], "z0", {}),
        ("Transpose", ["z0"], "z1", {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["z1", "joined"], "z", {}),
        ("MatMul", ["z", "wo"], "y", {}),
    ]
    held = {n: rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for n in ("wq", "wk", "wo")}
    held |= {"apart": apart, "joined": np.array([0, 0, WIDTH])}
    path = folder / "heads.onnx"
    inputs = {"x": np.zeros((2, 3, WIDTH), np.float32)}
    path.write_bytes(model_of(nodes, inputs, ["y"], held).SerializeToString())
    return path


def _make(path: Path) -> ir.Module:
    return build(path, spec_of("mse:y,labels", "adamw", clip_norm=0.5, weight_decay=0.1))


def _has_units(point: FrontierPoint) -> bool:
    """Say whether a gradient is split between units."""
    nodes = point.tables.graph.nodes
    return any(
        isinstance(node := nodes[index], Op)
        and node.phase == "backward"
        and any(layout.has_units for layout in own.results)
        for index, own in point.strategies.items()
    )


@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2)])
def test_gradients_have_whole_heads(mesh: tuple[int, ...], tmp_path: Path) -> None:
    path = _model(tmp_path)
    found = (p for seed in range(99) for p in points(_make(path), Mesh(mesh), seed=seed))
    point = next(filter(_has_units, found))
    assert relative_error(lambda: _make(path), point) < 1e-4
