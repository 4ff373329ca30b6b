"""Tensors whose axes split a dimension in another order than the mesh's, on real ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[8, 3] x) => (float[8, 3] y, float[8, 3] z) {
    y = MatMul (x, w)
    z = Relu (y)
}
"""
_TURNED = ["S(0, 1)", "S(0, 0)"]


def _model(path: Path) -> Path:
    model, rng = parser.parse_model(_TEXT), np.random.default_rng(0)
    weight = rng.standard_normal((3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, path)
    return path


def test_inputs_and_outputs_lie_in_any_order_of_axes(tmp_path: Path) -> None:
    """x is gathered along the axis that is minor in it; parts of z go to another rank."""
    model, plan, again = _model(tmp_path / "m.onnx"), tmp_path / "plan", tmp_path / "again"
    assert main([str(model), "--mesh", "2x2", "--search", "pase", "-o", str(plan)]) == 0
    document: dict[str, Any] = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    product, relu = document["strategies"]
    product["operands"], product["results"] = [["R", "S(0)"], ["R", "R"]], [["R", "S(0)"]]
    relu["operands"] = relu["results"] = [["S(0)", "S(0)"]]
    document["parameters"][0]["layout"] = ["R", "R"]
    for tensor in (*document["inputs"], *document["outputs"]):
        tensor["layout"] = _TURNED
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(document), encoding="utf-8")
    assert main([str(model), "--strategies", str(edited), "-o", str(again)]) == 0
    made = json.loads((again / "plan.json").read_text(encoding="utf-8"))
    assert [own["layout"] for own in (*made["inputs"], *made["outputs"])] == [_TURNED] * 3
    nodes = {node.op_type: node for node in onnx.load(again / "rank1.onnx").graph.node}
    gathers, moves = nodes["AllGather"], nodes["CollectivePermute"]
    assert onnx.helper.get_node_attr_value(gathers, "group") == [1, 3]  # along one axis alone
    assert onnx.helper.get_node_attr_value(moves, "sources") == [0, 2, 1, 3]
    result = check_plan(again, model, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
