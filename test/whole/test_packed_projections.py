"""Packed projections on real ranks: their weights, and outputs, are in blocks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import zoo
from onnx import numpy_helper, parser

from tensoropt import Session
from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[8, 64] x) => (float[8, 48] y, float[8, 32] a, float[8, 16] b)
<int64[2] s = {32, 16}> {
    y = MatMul (x, w)
    a, b = Split <axis = 1> (y, s)
}
"""


def _layouts(plan: Path) -> dict[str, list[str]]:
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    return {own["name"]: own["layout"] for own in document["parameters"]}


def _collectives(plan: Path) -> Counter[str]:
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    return Counter(node.op_type for node in graph.node if node.domain == "tensoropt")


@pytest.mark.parametrize("ranks", [2, 4])
def test_gpt2_splits_as_megatron_does(ranks: int, tmp_path: Path) -> None:
    """Two all-reduces per layer, and one after the embedding; nothing before attention."""
    model, plan = zoo.transformer_path("gpt2_tiny"), tmp_path / "plan"
    flags = ["--mesh", str(ranks), "--pick", "leanest"]
    assert main([str(model), *flags, "-o", str(plan)]) == 0
    packed = {n: own for n, own in _layouts(plan).items() if n.endswith("c_attn.weight")}
    assert list(packed.values()) == [["S(1 of 3)"]] * 2
    assert _collectives(plan) == {"AllReduce": 5}
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


@pytest.mark.parametrize("name", ["decoder_packed", "decoder_runtime_packed"])
def test_grouped_queries_and_gates_are_in_blocks(name: str, tmp_path: Path) -> None:
    model, plan = zoo.provide(name, tmp_path), tmp_path / "plan"
    dims = [f"--dim={dim}={size}" for dim, size in zoo.DIMS[name].items()]
    flags = ["--mesh", "2", "--search", "expert", "--pick", "leanest", *dims]
    assert main([str(model), *flags, "-o", str(plan)]) == 0
    layouts = Counter(str(layout) for layout in _layouts(plan).values() if "of" in str(layout))
    assert layouts == {"['S(1 of 2+1+1)']": 2, "['S(1 of 2)']": 2}
    assert _collectives(plan) == {"AllReduce": 5}


def test_outputs_may_be_in_blocks(tmp_path: Path) -> None:
    model, plan = tmp_path / "m.onnx", tmp_path / "plan"
    proto = parser.parse_model(_TEXT)
    weight = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(proto, model)
    pins = ["--pin", "w=S(1)", "--pin", "y=S(1)"]
    assert main([str(model), "--mesh", "2", *pins, "-o", str(plan)]) == 0
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    assert {own["name"]: own["layout"] for own in document["outputs"]}["y"] == ["S(1 of 2+1)"]
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
    rng, room = np.random.default_rng(1), None
    with Session(plan, threads=1) as session:
        for _ in range(3):  # also into the arrays of the last run
            x = rng.standard_normal((8, 64)).astype(np.float32)
            room = session.run({"x": x})
            np.testing.assert_allclose(room["y"], x @ weight, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(room["b"], (x @ weight)[:, 32:], rtol=1e-4, atol=1e-4)
