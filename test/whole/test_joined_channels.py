"""Channels that a CNN joins on real ranks: each rank has its piece of every part."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
fire (float[1, 16, 6, 6] x) => (float[1, 8, 6, 6] y) {
    a = Conv (x, v)
    b = Conv <pads = [1, 1, 1, 1]> (x, w)
    c = Concat <axis = 1> (a, b)
    d = Relu (c)
    y = Conv (d, u)
}
"""
_WEIGHTS = {"v": (32, 16, 1, 1), "w": (64, 16, 3, 3), "u": (8, 96, 1, 1)}


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_fire_module_reduces_once(ranks: int, tmp_path: Path) -> None:
    """As in Megatron's plan: columns of two convolutions, then rows of the next."""
    model, plan = tmp_path / "m.onnx", tmp_path / "plan"
    proto, rng = parser.parse_model(_TEXT), np.random.default_rng(0)
    for name, shape in _WEIGHTS.items():
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, model)
    pins = ["--pin", "v=S(0)", "--pin", "w=S(0)", "--pin", "u=S(1)", "--pin", "y=R"]
    assert main([str(model), "--mesh", str(ranks), *pins, "-o", str(plan)]) == 0
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    layouts = {own["name"]: own["layout"] for own in document["parameters"]}
    assert layouts == {"v": ["S(0)"], "w": ["S(0)"], "u": ["S(1 of 1+2)"]}
    nodes = onnx.load(plan / "rank0.onnx", load_external_data=False).graph.node
    collectives = Counter(node.op_type for node in nodes if node.domain == "tensoropt")
    assert collectives == {"AllReduce": 1}
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
