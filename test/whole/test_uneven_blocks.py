"""Quantised weights with blocks that the ranks do not divide, on real ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

BLOCKS, SIZE, WIDTH, ROWS = 3, 64, 512, 4


def _product(points: bool) -> onnx.ModelProto:
    """Return a product with a weight of 4 bits, in three blocks per column."""
    rng, inner = np.random.default_rng(0), BLOCKS * SIZE
    four = TensorProto.INT4
    held = [
        helper.make_tensor("w", four, (inner, WIDTH), rng.integers(-8, 8, inner * WIDTH)),
        helper.make_tensor("s", 1, (BLOCKS, WIDTH), rng.uniform(0.1, 1, BLOCKS * WIDTH)),
    ]
    if points:
        held.append(
            helper.make_tensor("p", four, (BLOCKS, WIDTH), rng.integers(-8, 8, BLOCKS * WIDTH))
        )
    names = [tensor.name for tensor in held]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["f"], axis=0, block_size=SIZE),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, 1, shape)]
        for name, shape in (("x", (ROWS, inner)), ("y", (ROWS, WIDTH)))
    ]
    graph = helper.make_graph(nodes, "g", *ends, held)
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def _mixture() -> onnx.ModelProto:
    """Return experts of 4 bits, with three blocks of features."""
    rng, experts, hidden, wide = np.random.default_rng(0), 4, SIZE, BLOCKS * SIZE
    shapes = {"a": (experts, wide, hidden // 2), "c": (experts, hidden, wide // 2)}
    held = [
        helper.make_tensor(name, TensorProto.UINT8, shape, rng.integers(0, 256, shape).ravel())
        for name, shape in shapes.items()
    ]
    scales = {"b": (experts, wide, 1), "d": (experts, hidden, BLOCKS)}
    held += [
        helper.make_tensor(name, 1, shape, rng.uniform(0.01, 0.05, shape).ravel())
        for name, shape in scales.items()
    ]
    settings = {"expert_weight_bits": 4, "block_size": SIZE, "k": 2, "activation_type": "relu"}
    operands = ["x", "r", "a", "b", "", "c", "d"]
    node = helper.make_node("QMoE", operands, ["y"], domain="com.microsoft", **settings)
    inputs = [
        helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", (ROWS, hidden)), ("r", (ROWS, experts)))
    ]
    output = helper.make_tensor_value_info("y", 1, (ROWS, hidden))
    graph = helper.make_graph([node], "g", inputs, [output], held)
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def _stored(plan: Path) -> dict[str, list[str]]:
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    return {own["name"]: own["layout"] for own in document["parameters"]}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("points", [True, False])
def test_rows_of_a_weight_in_three_blocks(ranks: int, points: bool, tmp_path: Path) -> None:
    model, plan = tmp_path / "m.onnx", tmp_path / "plan"
    onnx.save(_product(points), model)
    assert main([str(model), "--mesh", str(ranks), "--pin", "w=S(0)", "-o", str(plan)]) == 0
    own = {"w": ["S(0)"], "s": ["R"]} | ({"p": ["R"]} if points else {})
    assert _stored(plan) == own
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


@pytest.mark.parametrize("ranks", [2, 4])
def test_features_of_experts_in_three_blocks(ranks: int, tmp_path: Path) -> None:
    model, plan = tmp_path / "m.onnx", tmp_path / "plan"
    onnx.save(_mixture(), model)
    assert main([str(model), "--mesh", str(ranks), "--pin", "c=S(2)", "-o", str(plan)]) == 0
    stored = _stored(plan)
    assert stored == {"a": ["S(1)"], "b": ["S(1)"], "c": ["S(2)"], "d": ["R"]}
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
