"""Training with packed projections: two all-reduces, as in Megatron's plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from training.planned import STEP, collectives, error, searched

_MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[2, 3, 16] x) => (float[2, 3, 16] y)
<int64[4] heads = {2, 3, 4, 4}, int64[5] each = {2, 3, 4, 3, 4}, int64[5] three = {2, 3, 3, 4, 4},
 int64[3] batches = {8, 3, 4}, int64[4] apart = {2, 4, 3, 4}, int64[3] flat = {2, 3, 16},
 int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[1] n0 = {0}, int64[1] n1 = {1},
 int64[1] n2 = {2}, int64[1] n16 = {16}, int64[1] n32 = {32}, int64[1] n48 = {48},
 int64[1] m16 = {-16}> {
    first = MatMul (x, lead)
    PARTS
    rows = MatMul (z, rest)
    y = Add (rows, bias)
}
"""
"""A product that runs whole, a packed projection, and a product that sums over rows."""
_PACKED = """
    product = MatMul (first, w)
    packed = Add (product, b)
"""
_ATTENTION = """
    qt = Transpose <perm = [0, 2, 1, 3]> (q)
    kt = Transpose <perm = [0, 2, 3, 1]> (k)
    vt = Transpose <perm = [0, 2, 1, 3]> (v)
    scores = MatMul (qt, kt)
    shares = Softmax (scores)
    zt = MatMul (shares, vt)
    zh = Transpose <perm = [0, 2, 1, 3]> (zt)
    z = Reshape (zh, flat)
"""
_HEADS = """
    q = Reshape (q3, heads)
    k = Reshape (k3, heads)
    v = Reshape (v3, heads)
"""
_FORMS = {
    "split": _PACKED + "q3, k3, v3 = Split <axis = 2, num_outputs = 3> (packed)"
    + _HEADS + _ATTENTION,
    "slices": _PACKED + """
    q3 = Slice (packed, n0, n16, n2)
    k3 = Slice (packed, n16, m16, n2)
    v3 = Slice (packed, m16, n48, n2)
    """ + _HEADS + _ATTENTION,
    "each head": _PACKED + """
    all = Reshape (packed, each)
    q = Gather <axis = 3> (all, i0)
    k = Gather <axis = 3> (all, i1)
    v = Gather <axis = 3> (all, i2)
    """ + _ATTENTION,
    "three": _PACKED + """
    all = Reshape (packed, three)
    q = Gather <axis = 2> (all, i0)
    k = Gather <axis = 2> (all, i1)
    v = Gather <axis = 2> (all, i2)
    """ + _ATTENTION,
    "merged batches": _PACKED + """
    all = Reshape (packed, each)
    q = Gather <axis = 3> (all, i0)
    k = Gather <axis = 3> (all, i1)
    v = Gather <axis = 3> (all, i2)
    qt = Transpose <perm = [0, 2, 1, 3]> (q)
    kt = Transpose <perm = [0, 2, 1, 3]> (k)
    vt = Transpose <perm = [0, 2, 1, 3]> (v)
    qm = Reshape (qt, batches)
    km = Reshape (kt, batches)
    vm = Reshape (vt, batches)
    turned = Transpose <perm = [0, 2, 1]> (km)
    scores = MatMul (qm, turned)
    shares = Softmax (scores)
    zm = MatMul (shares, vm)
    zt = Reshape (zm, apart)
    zh = Transpose <perm = [0, 2, 1, 3]> (zt)
    z = Reshape (zh, flat)
    """,
    "weights": """
    wq, wk, wv = Split <axis = 1, num_outputs = 3> (w)
    q3 = MatMul (first, wq)
    k3 = MatMul (first, wk)
    v3 = MatMul (first, wv)
    """ + _HEADS + _ATTENTION,
    "turns": _PACKED + """
    gate = Slice (packed, n0, n32, n2, n2)
    up = Slice (packed, n1, n32, n2, n2)
    half = Sigmoid (gate)
    z = Mul (half, up)
    """,
}  # fmt: skip
_PINS = ["x=R", "y=R", "lead=R", "w=S(1)", "rest=S(0)"]


def _save(form: str, folder: Path) -> Path:
    proto, rng = parser.parse_model(_MODEL.replace("PARTS", _FORMS[form])), np.random.default_rng(0)
    columns = 32 if form == "turns" else 48
    shapes = {
        "lead": (16, 16),
        "w": (16, columns),
        "b": (columns,),
        "rest": (16, 16),
        "bias": (16,),
    }
    read = {name for node in proto.graph.node for name in node.input}
    for name in shapes.keys() & read:
        weight = 0.3 * rng.standard_normal(shapes[name], dtype=np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("form", _FORMS)
def test_forms_need_two_all_reduces(form: str, tmp_path: Path) -> None:
    """Of the rows, and of the gradient that the columns add up."""
    for ranks in (2, 4):
        text = searched(_save(form, tmp_path), ranks, _PINS, *STEP)
        assert collectives(text) == {"all_reduce": 2}
        assert error(text, ranks) < 1e-4


def test_merged_batches_may_be_split_by_samples(tmp_path: Path) -> None:
    """Two ranks with a sample each, and no split of the weights."""
    pins = ["x=S(0)", "y=S(0)", "w=R", "rest=R", "lead=R"]
    text = searched(_save("merged batches", tmp_path), 2, pins)
    assert not collectives(text)
    assert error(text, 2) < 1e-4
