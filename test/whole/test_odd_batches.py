"""A batch that ranks do not divide, on real ranks: some have one sample less, or none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs.trained import TRAINED
from onnx import numpy_helper, parser
from sweep_train import Case, sweep_case
from train_plans import plans

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.program.graph import Op
from tensoropt.runtime.inference.jobs import check_plan

_RANKS = 4
_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[6, 2, 8] x) => (float[6, 2, 8] y)
<int64[2] rows = {12, 8}, int64[4] heads = {0, 0, 2, 4}, int64[3] back = {6, 2, 8}>
{
    n = LayerNormalization (x, scale)
    flat = Reshape (n, rows)
    h = Gemm (flat, w, c)
    whole = Reshape (h, back)
    apart = Reshape (whole, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (apart)
    k = Transpose <perm = [0, 2, 3, 1]> (apart)
    s = MatMul (q, k)
    p = Softmax (s)
    v = MatMul (p, q)
    t = Transpose <perm = [0, 2, 1, 3]> (v)
    merged = Reshape (t, rows)
    o = Gemm (merged, w, c)
    y = Reshape (o, back)
}
"""


def _model(path: Path) -> Path:
    model, rng = parser.parse_model(_TEXT), np.random.default_rng(0)
    for name, shape in {"scale": (8,), "w": (8, 8), "c": (8,)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def test_six_samples_on_four_ranks(tmp_path: Path) -> None:
    """Attention as exporters write it, which merges samples with their rows, is split throughout:
    2, 2 and 2 samples, and the last rank has none."""
    model, plan = _model(tmp_path / "m.onnx"), tmp_path / "plan"
    argv = [model, "--mesh", str(_RANKS), "--search", "data-parallel", "-o", plan]
    assert main([str(arg) for arg in argv]) == 0
    document = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    made = {tuple(own["results"][0]) for own in document["strategies"] if own["operands"]}
    assert made == {("S(0)",)}
    assert document["outputs"][0]["layout"] == ["S(0)"]
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


@pytest.mark.slow
def test_six_samples_are_trained_on_four_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step's loss and its update are those of one device and of PyTorch, its memory what was said
    (all state is split)."""
    monkeypatch.setitem(TRAINED, "gpt2", replace(TRAINED["gpt2"], batch=6))
    case = Case("gpt2", tmp_path, 2)
    (plan,) = plans(case.path, case.recipe, _RANKS, ["zero 3"])
    graph = plan.point.tables.graph
    forward = [
        n for n, node in enumerate(graph.nodes) if isinstance(node, Op) and node.phase == "forward"
    ]
    made = {str(own.results[0]) for n in forward if (own := plan.point.strategies.get(n))}
    assert "[S(0)]" in made and made <= {"[S(0)]", "[P(sum)]", "[R]"}
    row = sweep_case(case, _RANKS, ["zero 3"])
    assert (row.failures, row.passed) == ([], 1)
    assert row.memory_error < 0.02
    assert row.point_error < 0.02
