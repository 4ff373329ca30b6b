"""Experts as PyTorch exports them: products of the weights that are gathered for each token."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from train_runs import difference, run_plan

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
gathered (float[8, 16] x) => (float[8, 16] y)
<int64[1] one = {1}, int64[1] k = {2}, int64[1] last = {-1}, int64[3] every = {8, 2, 16},
 int64[2] rows = {16, 16}> {
    normal = Relu (x)
    scores = MatMul (normal, router)
    odds = Softmax (scores)
    best, which = TopK (odds, k)
    WEIGHTS
    single = Unsqueeze (normal, one)
    repeated = Expand (single, every)
    tokens = Reshape (repeated, rows)
    flat = Reshape (which, last)
    indices = Unsqueeze (flat, last)
    ups = GatherND (up, indices)
    column = Unsqueeze (tokens, last)
    wide = MatMul (ups, column)
    both = Squeeze (wide, last)
    gate, value = Split <axis = 1, num_outputs = 2> (both)
    sigmoid = Sigmoid (gate)
    silu = Mul (gate, sigmoid)
    hidden = Mul (silu, value)
    downs = GatherND (down, indices)
    inner = Unsqueeze (hidden, last)
    narrow = MatMul (downs, inner)
    results = Squeeze (narrow, last)
    each = Reshape (weights, last)
    share = Unsqueeze (each, last)
    weighted = Mul (results, share)
    parts = Reshape (weighted, every)
    [mixture] summed = ReduceSum <keepdims = 0> (parts, one)
    y = Neg (summed)
}
"""
NORMAL = "total = ReduceSum (best, last)\n    weights = Div (best, total)"
PLAIN = "weights = Identity (best)"
DISGUISED = "twice = Add (best, best)\n    weights = Sub (twice, best)"
HALVED = "half = Mul (best, best)\n    weights = Identity (half)"
SENT = ["--pin", "node:mixture=[S(0)] [S(0)] [S(0)] * [S(0)] * -> [S(0)]"]


def gathered(folder: Path, weights: str) -> Path:
    proto, rng = parser.parse_model(TEXT.replace("WEIGHTS", weights)), np.random.default_rng(0)
    shapes = {"router": (16, 4), "up": (4, 12, 16), "down": (4, 16, 6)}
    for name, shape in shapes.items():
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    path = folder / "gathered.onnx"
    onnx.save(proto, path)
    return path


def operators(plan: Path) -> Counter[str]:
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("weights", [NORMAL, PLAIN])
def test_gathered_experts_become_a_mixture(weights: str, ranks: int, tmp_path: Path) -> None:
    model, plan = gathered(tmp_path, weights), tmp_path / "plan"
    pins = SENT if ranks > 1 else []
    assert main([str(model), "--mesh", str(ranks), *pins, "-o", str(plan)]) == 0
    found = operators(plan)
    assert found["MoE"] == found["Barrier"] == 1
    assert found["GatherND"] == 0 and found["AllToAllRows"] == (2 if ranks > 1 else 0)
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


def test_experts_with_other_weights_stay(tmp_path: Path) -> None:
    model, plan = gathered(tmp_path, HALVED), tmp_path / "plan"
    assert main([str(model), "--mesh", "1", "-o", str(plan)]) == 0
    assert operators(plan)["GatherND"] == 2


def test_a_training_step_has_a_mixture_too(tmp_path: Path) -> None:
    """Its losses are those of a step with the products of gathered weights."""
    data, rng, found = tmp_path / "data.npz", np.random.default_rng(1), []
    x, labels = (rng.standard_normal((16, 16), np.float32) for _ in range(2))
    np.savez(data, x=x, labels=labels)
    for number, weights in enumerate((PLAIN, DISGUISED)):
        model, plan = gathered(tmp_path, weights), tmp_path / f"plan{number}"
        step = ["--train", "--loss", "mse:y,labels", "--optimizer", "sgd"]
        assert main([str(model), "--mesh", "1", *step, "-o", str(plan)]) == 0
        found.append((operators(plan)["MoE"], run_plan(plan, data, 4, 0.1, threads=1).losses))
    (mixtures, losses), (others, wanted) = found
    assert (mixtures, others) == (1, 0)
    assert difference(losses, wanted) < 1e-5


def test_features_of_joined_experts_are_stored_in_pieces(tmp_path: Path) -> None:
    """A weight is `[gate | up]`, and the mixture reads them in turns."""
    model, plan = gathered(tmp_path, NORMAL), tmp_path / "plan"
    pins = ("--pin", "up=S(1)", "--pin", "down=S(2)")
    assert main([str(model), "--mesh", "2", *pins, "-o", str(plan)]) == 0
    assert "MoE" in operators(plan)
    stored = json.loads((plan / "plan.json").read_text())["parameters"]
    layouts = {row["name"]: row["layout"] for row in stored}
    assert (layouts["up"], layouts["down"]) == (["S(1 of 2)"], ["S(2)"])
    done = check_plan(plan, model, runs=1, threads=1)
    assert done.passed, done
