"""Tensors that are filled by writes of boxes, as in legacy exports of DeepSeek's attention."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

_TEXT = """
<ir_version: 10, opset_import: ["" : 17]>
g (float[1, 4, 64] x) => (float[1, 4, 4, 24] y) {
    a = MatMul (x, w)
    b = MatMul (x, v)
    s = Constant <value_ints = [1, 4, 4, 16]> ()
    t = Constant <value_ints = [1, 4, 4, 8]> ()
    c = Reshape (a, s)
    d = Reshape (b, t)
    e = ScatterND (z, i, c)
    f = ScatterND (e, j, d)
    y = Relu (f)
}
"""


def _indices(start: int, count: int) -> np.ndarray:
    found = np.stack(np.indices((1, 4, 4, count)), axis=-1)
    found[..., 3] += start
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_heads_of_two_parts_are_split(ranks: int, tmp_path: Path) -> None:
    model, plan = tmp_path / "m.onnx", tmp_path / "plan"
    proto, rng = parser.parse_model(_TEXT), np.random.default_rng(0)
    held = {
        "w": rng.standard_normal((64, 64)).astype(np.float32),
        "v": rng.standard_normal((64, 32)).astype(np.float32),
        "z": np.zeros((1, 4, 4, 24), np.float32),
        "i": _indices(0, 16),
        "j": _indices(16, 8),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(own, key) for key, own in held.items())
    onnx.save(proto, model)
    pins = ["--pin", "w=S(1)", "--pin", "v=S(1)", "--pin", "y=S(2)"]
    assert main([str(model), "--mesh", str(ranks), *pins, "-o", str(plan)]) == 0
    nodes = Counter(node.op_type for node in onnx.load(plan / "rank0.onnx").graph.node)
    assert nodes == {"MatMul": 2, "Reshape": 2, "Concat": 1, "Relu": 1}
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
