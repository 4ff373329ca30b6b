"""Channels within the groups of convolutions on real ranks: pieces of every group, in blocks."""

from __future__ import annotations

import json
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
shuffle (float[2, 12, 4, 4] x) => (float[2, 24, 4, 4] y) {
    a = Conv <group = 3> (x, w, b)
    r = Relu (a)
    g = Constant <value_ints = [2, 3, 8, 4, 4]> ()
    q = Reshape (r, g)
    t = Transpose <perm = [0, 2, 1, 3, 4]> (q)
    m = Constant <value_ints = [2, 24, 4, 4]> ()
    s = Reshape (t, m)
    d = Conv <group = 24, pads = [1, 1, 1, 1]> (s, v)
    y = Conv <group = 3> (d, u)
}
"""
_WEIGHTS = {"w": (24, 4, 1, 1), "b": (24,), "v": (24, 1, 3, 3), "u": (24, 8, 1, 1)}


def _saved(folder: Path) -> Path:
    proto, rng = parser.parse_model(_TEXT), np.random.default_rng(0)
    for name, shape in _WEIGHTS.items():
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


def test_a_shuffle_of_blocks_sends_nothing(tmp_path: Path) -> None:
    """Blocks of groups become contiguous channels. The next groups gather, as does the output."""
    model, plan = _saved(tmp_path), tmp_path / "plan"
    pins = ["--pin", "w=S(0)", "--pin", "v=S(0)", "--pin", "u=S(0)", "--pin", "y=R"]
    assert main([str(model), "--mesh", "2", *pins, "-o", str(plan)]) == 0
    nodes = onnx.load(plan / "rank0.onnx", load_external_data=False).graph.node
    kinds = [node.op_type for node in nodes if node.op_type == "Conv" or node.domain]
    assert kinds == ["Conv", "Conv", "AllGather", "Conv", "AllGather"]
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


@pytest.mark.parametrize(
    ("mesh", "pinned", "stored"),
    [
        ("2", {"w": "S(0)", "u": "S(0)"}, (["S(0 of 3)"], ["S(0 of 3)"])),
        ("4", {"w": "S(0)", "u": "S(1)"}, (["S(0 of 3)"], ["S(1)"])),
        ("3x2", {"w": "S(0)@x,S(0)@y"}, (["S(0)", "S(0)"],)),
    ],
)
def test_a_shuffle_of_three_groups(
    mesh: str, pinned: dict[str, str], stored: tuple[list[str], ...], tmp_path: Path
) -> None:
    model, plan = _saved(tmp_path), tmp_path / "plan"
    pins = [f"--pin={name}={placed}" for name, placed in pinned.items()]
    assert main([str(model), "--mesh", mesh, *pins, "-o", str(plan)]) == 0
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    layouts = {own["name"]: own["layout"] for own in document["parameters"]}
    assert tuple(layouts[name] for name in pinned) == stored
    result = check_plan(plan, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
