"""Networks whose rows and columns are split on real ranks: what windows read is exchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans

_SLIDING = {"Conv", "MaxPool", "AveragePool", "LpPool"}
_TEXT = """
<ir_version: 10, opset_import: ["" : {version}]>
g (float[1, 3, 64, 32] x) => (float[1, 8, 8, 8] y) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w0)
    b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (a)
    c = Conv <auto_pad = "SAME_UPPER"> (b, w1)
    d = AveragePool <kernel_shape = [3, 2], pads = [1, 0, 0, 0], strides = [2, 2]> (c)
    e = Conv <dilations = [2, 1], group = 2, pads = [3, 1, 1, 1]> (d, w2)
    y = LpPool <kernel_shape = [4, 1], pads = [1, 0, 1, 0], strides = [2, 1]> (e)
}}
"""


def _network(version: int, path: Path) -> Path:
    rng = np.random.default_rng(0)
    shapes = {"w0": (8, 3, 3, 3), "w1": (8, 8, 3, 3), "w2": (8, 4, 3, 3)}
    model = parser.parse_model(_TEXT.format(version=version))
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(helper.make_model(model.graph, opset_imports=model.opset_import, ir_version=10), path)
    return path


def _split_space(plan: Path, split: list[str]) -> Path:
    """Return the document of ``plan`` in which the axes split what every sliding window reads."""
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    whole = ["R"] * len(split)
    for row in document["strategies"]:
        if row["op"] in _SLIDING:
            row["operands"] = [split, *[whole for _ in row["operands"][1:]]]
            row["results"] = [split]
    for tensor in document["parameters"]:  # all of them weights of what is split
        tensor["layout"] = whole
    edited = plan.parent / "edited.json"
    edited.write_text(json.dumps(document), encoding="utf-8")
    return edited


ON_TWO = [("2", ["S(2)"])]
ON_FOUR = [("4", ["S(3)"]), ("2x2", ["S(2)", "S(2)"]), ("2x2", ["S(2)", "S(3)"])]
OLD_ON_FOUR = [("4", ["S(2)"]), ("2x2", ["S(3)", "S(2)"])]


@pytest.mark.parametrize(("splits", "version"), [(ON_TWO, 20), (ON_FOUR, 20), (OLD_ON_FOUR, 9)])
def test_space_is_split(splits: list[tuple[str, list[str]]], version: int, tmp_path: Path) -> None:
    path = _network(version, tmp_path / "model.onnx")
    plans = []
    for number, (mesh, split) in enumerate(splits):
        folder = tmp_path / str(number)
        folder.mkdir()
        first, plan = folder / "first", folder / "plan"
        assert main([str(path), "--mesh", mesh, "-o", str(first)]) == 0
        edited = _split_space(first, split)
        assert main([str(path), "--strategies", str(edited), "-o", str(plan)]) == 0
        plans.append(plan)
    results = check_plans(plans, path, threads=1, timeout_s=120)
    assert [(result.error, result.passed) for result in results] == [(None, True)] * len(plans)
