"""Clipping by the norm of all gradients, on ranks and in stages, where squares overflow float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import tensoropt as to

STEPS, RATE, SAMPLES, WIDTH = 3, 0.1, 8, 4
RNG = np.random.default_rng(0)
WEIGHTS = {name: RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32) for name in ("w0", "w1")}


def model(path: Path, batch: int) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], "first"),
        helper.make_node("MatMul", ["h", "w1"], ["y"], "second"),
        helper.make_node("ReduceMean", ["y"], ["l"], "mean", keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, WIDTH])
    loss = helper.make_tensor_value_info("l", TensorProto.FLOAT, [])
    stored = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "steep", [x], [loss], stored)
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def trained_by_torch(x: np.ndarray) -> dict[str, np.ndarray]:
    import torch

    w = {
        name: torch.tensor(a, dtype=torch.float64, requires_grad=True)
        for name, a in WEIGHTS.items()
    }
    optimizer = torch.optim.AdamW(list(w.values()), RATE, weight_decay=0.0)
    for rows in np.split(x, STEPS):
        optimizer.zero_grad()
        (torch.tensor(rows, dtype=torch.float64) @ w["w0"] @ w["w1"]).mean().backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        optimizer.step()
    return {name: value.detach().numpy() for name, value in w.items()}


@pytest.mark.parametrize(
    ("devices", "micro_batches", "asked"),
    [(2, 1, {"pins": ["x=S(0)"]}), (2, 2, {"pins": ["x=S(1)"]}), (2, 2, {"stages": 2})],
)
def test_the_norm_of_all_ranks_does_not_overflow(
    devices: int, micro_batches: int, asked: dict[str, Any], tmp_path: Path
) -> None:
    train = to.Training(
        "output:l", "adamw", clip_norm=1.0, micro_batches=micro_batches, recompute="none"
    )
    path = model(tmp_path / "model.onnx", SAMPLES // micro_batches)
    frontier = to.load(path).frontier(devices, train=train, epsilon=1.0, **asked)
    plan = frontier.fastest.compile(tmp_path / "plan")
    x = (1e21 * np.random.default_rng(1).standard_normal((STEPS * SAMPLES, WIDTH))).astype(
        np.float32
    )
    run = to.train(plan, {"x": x}, STEPS, learning_rate=RATE, checkpoint=tmp_path / "saved")
    saved = load_file(str(run.checkpoint))
    for name, array in trained_by_torch(x).items():
        np.testing.assert_allclose(saved[name], array, rtol=1e-4, atol=1e-5)
