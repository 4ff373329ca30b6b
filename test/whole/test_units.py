"""Heads that do not divide, and dimensions that two axes pad together, on real ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tensoropt import train
from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

_ATTENTION = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[2, 8, W] x) => (float[2, 8, W] y, float[2, H, 8, 16] k)
<int64[4] apart = {0, 0, H, 16}, int64[3] joined = {0, 0, W}> {
    q0 = MatMul (x, wq)
    q1 = Reshape (q0, apart)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k0 = MatMul (x, wk)
    k1 = Reshape (k0, apart)
    k = Transpose <perm = [0, 2, 1, 3]> (k1)
    v0 = MatMul (x, wv)
    v1 = Reshape (v0, apart)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    t = Transpose <perm = [0, 1, 3, 2]> (k)
    s = MatMul (q, t)
    p = Softmax (s)
    z0 = MatMul (p, v)
    z1 = Transpose <perm = [0, 2, 1, 3]> (z0)
    z = Reshape (z1, joined)
    y = MatMul (z, wo)
}
"""


def _attention(heads: int, path: Path) -> None:
    width, rng = 16 * heads, np.random.default_rng(0)
    proto = parser.parse_model(_ATTENTION.replace("W", str(width)).replace("H", str(heads)))
    for name in ("wq", "wk", "wv", "wo"):
        weight = rng.standard_normal((width, width)).astype(np.float32) / 8
        proto.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(proto, path)


def _layouts(plan: Path, entry: str) -> dict[str, list[str]]:
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    return {own["name"]: own["layout"] for own in document[entry]}


_WORDS = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[4, 8] x) => (float[4, 257] y, float[4, 8] z) {
    y = MatMul (x, w)
    e = Exp (y)
    z = MatMul (e, v)
}
"""


@pytest.mark.parametrize(("heads", "ranks"), [(5, 2), (5, 3)])
def test_ranks_have_whole_heads(heads: int, ranks: int, tmp_path: Path) -> None:
    """As Megatron has it: columns, then rows, and one all-reduce."""
    model, plan = tmp_path / "m.onnx", tmp_path / "plan"
    _attention(heads, model)
    pins = [
        "--epsilon",
        "0.1",
        "--pin",
        "wq=S(1)",
        "--pin",
        "wo=S(0)",
        "--pin",
        "k=S(1)",
        "--pin",
        "y=R",
    ]
    assert main([str(model), "--mesh", str(ranks), *pins, "-o", str(plan)]) == 0
    columns, rows = [f"S(1 in {heads})"], [f"S(0 in {heads})"]
    wanted = {"wq": columns, "wk": columns, "wv": columns, "wo": rows}
    assert _layouts(plan, "parameters") == wanted
    assert _layouts(plan, "outputs") == {"y": ["R"], "k": ["S(1)"]}
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    sent = [node.op_type for node in graph.node if node.domain == "tensoropt"]
    assert sent == ["AllReduce"]
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


def test_two_axes_share_words_that_do_not_divide(tmp_path: Path) -> None:
    """Parts of 65 of 257 words, on 2x2 as on 4; their sum is over both axes at once."""
    model, plan, rng = tmp_path / "m.onnx", tmp_path / "plan", np.random.default_rng(0)
    proto = parser.parse_model(_WORDS)
    for name, shape in (("w", (8, 257)), ("v", (257, 8))):
        weight = rng.standard_normal(shape).astype(np.float32) / 8
        proto.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(proto, model)
    pins = ["--epsilon", "0.1", "--pin", "w=S(1)", "--pin", "v=S(0)", "--pin", "z=R"]
    assert main([str(model), "--mesh", "2x2", *pins, "-o", str(plan)]) == 0
    assert _layouts(plan, "parameters") == {"w": ["S(1)", "S(1)"], "v": ["S(0)", "S(0)"]}
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    assert {t.name: list(t.dims) for t in graph.initializer}["w"] == [8, 65]
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


def test_a_trained_state_moves_between_whole_heads_and_whole_tensors(tmp_path: Path) -> None:
    """Two ranks train with five heads, and one goes on from their checkpoint as they do."""
    model, rng = tmp_path / "m.onnx", np.random.default_rng(0)
    _attention(5, model)
    flags = ["--train", "--loss", "mse:y,labels", "--optimizer", "adamw", "--epsilon", "0.2"]
    pins = ["--pin", "wq=S(1)", "--pin", "wo=S(0)"]
    plans = {"2": tmp_path / "two", "1": tmp_path / "one"}
    for mesh, plan in plans.items():
        own = pins if mesh == "2" else []
        assert main([str(model), *flags, "--mesh", mesh, *own, "-o", str(plan)]) == 0
    document: dict[str, Any] = json.loads((plans["2"] / "plan.json").read_text(encoding="utf-8"))
    state = {own["name"]: own["layout"] for own in document["training"]["state"]}
    assert state["wq.mean"] == ["S(1 in 5)"] and state["wo.variance"] == ["S(0 in 5)"]
    data = {n: rng.standard_normal((8, 8, 80)).astype(np.float32) for n in ("x", "labels")}
    first = train(plans["2"], data, 2, learning_rate=0.01, checkpoint=tmp_path / "c")
    on = {
        mesh: train(plan, data, 2, learning_rate=0.01, resume=first.checkpoint).losses
        for mesh, plan in plans.items()
    }
    np.testing.assert_allclose(on["1"], on["2"], rtol=1e-4)
