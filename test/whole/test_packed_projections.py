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

_HEADS = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[1, n, 64] x) => (float[1, n, 64] y)
<int64[5] cut = {1, -1, 4, 3, 16}, int64[1] four = {4}, int64[1] axis = {1}, int64[1] size = {16},
 int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[4] back = {1, 4, -1, 16},
 int64[3] flat = {1, -1, 64}> {
    both = MatMul (x, w)
    parts = Reshape (both, cut)
    q = Gather <axis = 3> (parts, zero)
    k = Gather <axis = 3> (parts, one)
    v = Gather <axis = 3> (parts, two)
    qt = Transpose <perm = [0, 2, 1, 3]> (q)
    kt = Transpose <perm = [0, 2, 3, 1]> (k)
    vt = Transpose <perm = [0, 2, 1, 3]> (v)
    scores = MatMul (qt, kt)
    shares = Softmax (scores)
    n1 = Shape <start = 1, end = 2> (x)
    shape = Concat <axis = 0> (four, n1, n1)
    merged = Reshape <allowzero = 1> (shares, shape)
    shape3 = Concat <axis = 0> (four, n1, size)
    values = Reshape <allowzero = 1> (vt, shape3)
    z = MatMul (merged, values)
    z4 = Reshape (z, back)
    zt = Transpose <perm = [0, 2, 1, 3]> (z4)
    rows = Reshape (zt, flat)
    y = MatMul (rows, u)
}
"""
"""Attention of BLOOM: `q | k | v` within each head, products of merged batches."""

_ATTENTION = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[1, n, 48] x) => (float[1, n, 48] y)
<int64[3] cut = {SIZES}, int64[4] heads = {1, -1, COUNT, 4}, int64[4] keys = {1, -1, SHARED, 4},
 int64[3] flat = {1, -1, 48}, int64[1] first = {0}, int64[1] last = {-2}, int64[1] axis = {2},
 int64[1] one = {1}, int64[1, 1] key = {-2}, int64[1, 1] value = {-1},
 int64[4] every = {1, -1, TOTAL, 4}> {
    packed = MatMul (x, w)
    PARTS
    qt = Transpose <perm = [0, 2, 1, 3]> (q)
    kt = Transpose <perm = [0, 2, 3, 1]> (k)
    vt = Transpose <perm = [0, 2, 1, 3]> (v)
    scores = MatMul (qt, kt)
    shares = Softmax (scores)
    z = MatMul (shares, vt)
    zt = Transpose <perm = [0, 2, 1, 3]> (z)
    rows = Reshape (zt, flat)
    y = MatMul (rows, u)
}
"""
"""Attention of a packed projection, with heads of four elements."""
_SPLIT = """
    q3, k3, v3 = Split <axis = 2> (packed, cut)
    q = Reshape (q3, heads)
    k = Reshape (k3, keys)
    v = Reshape (v3, keys)
"""
_PICKED = """
    all = Reshape (packed, every)
    q = Slice (all, first, last, axis, one)
    turned = Transpose <perm = [2, 0, 1, 3]> (all)
    k4 = GatherND (turned, key)
    v4 = GatherND (turned, value)
    k = Transpose <perm = [1, 2, 0, 3]> (k4)
    v = Transpose <perm = [1, 2, 0, 3]> (v4)
"""
"""As Falcon's export cuts out the single head of keys."""

_EXPERTS = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[6, 1, 64] x, int64[6, 1] chosen) => (float[6, 1, 64] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {192}> {
    first = GatherND (w, chosen)
    both = MatMul (x, first)
    CUT
    half = Sigmoid (gate)
    z = Mul (half, up)
    second = GatherND (u, chosen)
    y = MatMul (z, second)
}
"""
"""Experts as PyTorch exports them: products with matrices that a router picks."""
_PACKED = "gate, up = Split <axis = 2, num_outputs = 2> (both)"
_ALTERNATING = """
    gate = Slice (both, zero, end, two, two)
    up = Slice (both, one, end, two, two)
"""

_TURN = """
    m{0} = Equal (chosen, e{0})
    n{0} = NonZero (m{0})
    i{0} = Transpose (n{0})
    x{0} = GatherND (x, i{0})
    b{0} = MatMul (x{0}, w{0})
    g{0}, h{0} = Split <axis = 1, num_outputs = 2> (b{0})
    s{0} = Sigmoid (g{0})
    z{0} = Mul (s{0}, h{0})
    o{0} = MatMul (z{0}, u{0})
    y{0} = ScatterND <reduction = "add"> ({1}, i{0}, o{0})
"""
_LOOP = f"""
<ir_version: 10, opset_import: ["" : 20]>
g (float[6, 64] x, int64[6] chosen) => (float[6, 64] y)
<int64 e0 = {{0}}, int64 e1 = {{1}}, int64 e2 = {{2}}> {{
    shape = Shape (x)
    zeros = ConstantOfShape (shape)
    {_TURN.format(0, "zeros")} {_TURN.format(1, "y0")} {_TURN.format(2, "y1")}
    y = Identity (y2)
}}
"""
"""Experts in turn, each on the tokens that chose it."""


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
    flags = ["--mesh", str(ranks), "--pick", "leanest", "--resolution", "0"]
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


@pytest.mark.parametrize(
    ("text", "weights", "pins", "dims"),
    [
        (_HEADS, {"w": (64, 192), "u": (64, 64)}, {"w": "S(1)", "u": "S(0)"}, {"n": 7}),
        *(
            (
                _EXPERTS.replace("CUT", cut),
                {"w": (3, 64, 192), "u": (3, 96, 64)},
                {"w": "S(2)", "u": "S(1)"},
                {},
            )
            for cut in (_PACKED, _ALTERNATING)
        ),
        (
            _LOOP,
            {name: (64, 192) for name in ("w0", "w1", "w2")}
            | {name: (96, 64) for name in ("u0", "u1", "u2")},
            {"w*": "S(1)", "u*": "S(0)"},
            {},
        ),
    ],
    ids=["heads", "experts", "alternating", "loop"],
)
def test_forms_of_exporters_need_one_all_reduce(
    text: str,
    weights: dict[str, tuple[int, ...]],
    pins: dict[str, str],
    dims: dict[str, int],
    tmp_path: Path,
) -> None:
    model, plan = _save(text, weights, tmp_path), tmp_path / "plan"
    pinned = [f"--pin={name}={layout}" for name, layout in {**pins, "y": "R"}.items()]
    ranges = [f"--dim={name}=1..{2 * size}" for name, size in dims.items()]
    assert main([str(model), "--mesh", "2", *pinned, *ranges, "-o", str(plan)]) == 0
    assert _collectives(plan) == {"AllReduce": 1}
    result = check_plan(plan, model, threads=1, timeout_s=120, int_range=(0, 3), dims=dims)
    assert (result.error, result.passed) == (None, True)


def _attention(parts: str, shared: int, folder: Path) -> Path:
    """Return a model with twelve heads of queries and ``shared`` heads of keys."""
    total = 12 + 2 * shared
    given = {
        "SIZES": f"48, {4 * shared}, {4 * shared}", "COUNT": "12", "SHARED": str(shared),
        "TOTAL": str(total), "PARTS": parts,
    }  # fmt: skip
    text = _ATTENTION
    for name, value in given.items():
        text = text.replace(name, value)
    return _save(text, {"w": (48, 4 * total), "u": (48, 48)}, folder)


def _save(text: str, weights: dict[str, tuple[int, ...]], folder: Path) -> Path:
    """Return the file of a model with random weights."""
    proto, rng = parser.parse_model(text), np.random.default_rng(0)
    for name, shape in weights.items():
        weight = 0.2 * rng.standard_normal(shape, dtype=np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    ("parts", "shared", "ranks", "layout"),
    [
        (_SPLIT, 1, 2, "S(1 of 12+1+1 in 12+1+1)"),
        (_PICKED, 1, 4, "S(1 of 12+1+1 in 12+1+1)"),
        (_SPLIT, 12, 5, "S(1 of 3 in 12)"),
        (_SPLIT, 1, 5, "S(1 of 12+1+1 in 12+1+1)"),
    ],
    ids=["split", "picked", "padded", "both"],
)
def test_heads_of_blocks_may_be_copied_or_padded(
    parts: str, shared: int, ranks: int, layout: str, tmp_path: Path
) -> None:
    model, plan = _attention(parts, shared, tmp_path), tmp_path / "plan"
    pins = ["--pin", "w=S(1)", "--pin", "u=S(0)", "--pin", "y=R", "--dim", "n=1..14"]
    assert main([str(model), "--mesh", str(ranks), *pins, "-o", str(plan)]) == 0
    assert _layouts(plan)["w"] == [layout]
    assert _collectives(plan) == {"AllReduce": 1}
    result = check_plan(plan, model, threads=1, timeout_s=120, dims={"n": 7})
    assert (result.error, result.passed) == (None, True)


def test_ranks_that_share_a_key_head_have_copies(tmp_path: Path) -> None:
    """Two heads of keys on four ranks."""
    name = "decoder_runtime_packed"
    model, plan = zoo.provide(name, tmp_path), tmp_path / "plan"
    dims = [f"--dim={dim}={size}" for dim, size in zoo.DIMS[name].items()]
    flags = ["--mesh", "2x2", "--search", "expert", "--pick", "leanest", "--device", "v100", *dims]
    assert main([str(model), *flags, "-o", str(plan)]) == 0
    layouts = Counter(str(own) for own in _layouts(plan).values() if " in " in str(own))
    assert layouts == {str(["S(1 of 2+1+1 in 4+2+2)"] * 2): 2}
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


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
