"""Mixtures that send tokens to the ranks of their experts, on real ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graphs.builder import Builder
from graphs.llama import Llama
from graphs.trained import LOSS
from onnx import TensorProto, helper, numpy_helper
from train_runs import difference, run_plan
from training_data import draw

import tensoropt as to
from tensoropt import Session
from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.inspection.validation import validate

EXPERTS, WIDTH, TOKENS = 4, 16, 8
PAIRS = [(0, 1), (3, 2), (1, 3), (0, 0)]
EXPERT_BYTES = 8 * 3 * 64 * 256 * 4
SENT = "node:*mixture=[S(0)] [S(0)] [S(0)] * [S(0)] -> [S(0)]"
QUEUES = [
    "node:*experts_gate=[S(0)] [S(0)] -> [S(0)]",
    "node:*experts_up=[S(0)] [S(0)] -> [S(0)]",
    "node:*experts_down=[S(0)] [S(0)] -> [S(0)]",
    "node:*send=[S(0)] [S(0)] -> [S(1)]",
    "node:*collect=[S(0)] [S(1)] -> [S(0)]",
]
SLOW = """
name = "slow"
launch_overhead_s = 1e-6
devices_per_node = 8

[peak_flop_per_s]
float32 = 1e12

[efficiency]
contraction = 1.0

[memory]
bandwidth_bytes_per_s = 1e11
capacity_bytes = 8e9

[link.intra_node]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e8

[link.network]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e8
"""


def small(**sizes: int) -> Builder:
    given = {"layers": 2, "width": 32, "heads": 4, "groups": 2, "inner": 48, "vocabulary": 64}
    own = {**given, "experts": 8, "choices": 2, "sequence": 8, "batch": 4, **sizes}
    return Llama(**own, dtype="float32").build("small")


def operators(plan: Path) -> Counter[str]:
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    return Counter(node.op_type for node in graph.node if node.domain == "tensoropt")


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_decoder_sends_its_tokens(ranks: int, tmp_path: Path) -> None:
    """Two exchanges for each layer."""
    model, plan = small().save(tmp_path, seed=0), tmp_path / "plan"
    assert main([str(model), "--mesh", str(ranks), "--pin", SENT, "-o", str(plan)]) == 0
    assert operators(plan)["AllToAllRows"] == 4
    assert validate(plan) == []
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


def routed(folder: Path) -> Path:
    """Write a mixture whose scores are an input."""
    rng, path = np.random.default_rng(0), folder / "routed.onnx"
    shapes = {"up": (EXPERTS, 32, WIDTH), "down": (EXPERTS, WIDTH, 32)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node(
        "MoE", ["x", "scores", "up", "", "down"], ["y"], "mixture", domain="com.microsoft", k=2,
        activation_type="silu", normalize_routing_weights=1,
    )  # fmt: skip
    kinds = {"x": WIDTH, "scores": EXPERTS, "y": WIDTH}
    x, scores, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [TOKENS, size])
        for name, size in kinds.items()
    )
    graph = helper.make_graph([node], "routed", [x, scores], [y], weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize("ranks", [2, 4])
def test_numbers_of_rows_change_between_steps(ranks: int, tmp_path: Path) -> None:
    """All tokens to one pair of experts, to another, and any: in one session."""
    model, plan = routed(tmp_path), tmp_path / "plan"
    assert main([str(model), "--mesh", str(ranks), "--pin", SENT, "-o", str(plan)]) == 0
    assert operators(plan)["AllToAllRows"] == 2
    rng = np.random.default_rng(1)
    whole = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    same = [np.tile(np.eye(EXPERTS)[a] * 9 + np.eye(EXPERTS)[b] * 8, (TOKENS, 1)) for a, b in PAIRS]
    steps = [*same, *(rng.standard_normal((TOKENS, EXPERTS)) for _ in range(3))]
    with Session(plan, threads=1) as session:
        for scores in steps:
            x = rng.standard_normal((TOKENS, WIDTH)).astype(np.float32)
            given = {"x": x, "scores": scores.astype(np.float32)}
            [wanted] = whole.run(None, given)
            np.testing.assert_allclose(session.run(given)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_the_search_sends_tokens_where_that_is_fastest(tmp_path: Path) -> None:
    """On a slow link, if a rank has no room for all experts; with a fast one, it has each."""
    device = tmp_path / "slow.toml"
    device.write_text(SLOW, encoding="utf-8")
    sizes = {"layers": 1, "width": 64, "inner": 256, "experts": 8, "sequence": 64, "batch": 8}
    model = to.load(small(**sizes).save(tmp_path, seed=0))
    how = {"devices": 4, "mesh": "4", "device": str(device), "epsilon": 0.05}
    whole = model.frontier(**how).fastest
    point = model.frontier(**how, memory=whole.memory_bytes - EXPERT_BYTES // 2).fastest
    plan = tmp_path / "plan"
    point.compile(plan)
    assert operators(plan)["AllToAllRows"] == 2
    assert "split by batch and experts together over x" in str(point.explain())


def test_one_hot_mixtures_train_with_all_to_alls(tmp_path: Path) -> None:
    """Products that place tokens in queues: reshards move these, forward and backward."""
    model, data = small(layers=1, choices=0).save(tmp_path, seed=0), tmp_path / "data.npz"
    np.savez(data, **draw(model, 8))
    losses = []
    for ranks, pins in ((1, ()), (2, QUEUES)):
        train = to.Training(LOSS, "sgd", recompute="none", freeze=["constant_*"])
        found = to.load(model).frontier(ranks, train=train, epsilon=1.0, pins=pins)
        plan = tmp_path / f"plan{ranks}"
        found.fastest.compile(plan)
        losses.append(run_plan(plan, data, 4, 0.05, threads=1).losses)
    assert operators(tmp_path / "plan2")["AllToAll"] == 4
    assert difference(*losses) < 1e-4
