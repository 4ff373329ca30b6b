"""Seeds of a plan in its model: each call of a function has its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnx
from onnx import helper, parser

from tensoropt.runtime.session.seeds import add_seeds

MODEL = """
<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
m (float[8, 6] x) => (float[8, 6] y) {
    a = own.Noise (x)
    y = own.Noise (a)
}
<domain: "own", opset_import: ["" : 20]>
Noise (a) => (b) { b = RandomNormalLike (a) }
"""
RANK = """
<ir_version: 10, opset_import: ["" : 20]>
m (float[8, 6] x) => (float[8, 6] y) {
    a = RandomNormalLike <seed = 3.0> (x)
    y = RandomNormalLike <seed = 4.0> (a)
}
"""


def test_each_call_of_a_function_has_a_seed(tmp_path: Path) -> None:
    """The plan has one node per call; the model has one in its function."""
    for name, text in (("model", MODEL), ("rank", RANK)):
        onnx.save(parser.parse_model(text), tmp_path / f"{name}.onnx")
    plan = SimpleNamespace(
        document={"strategies": [{"op": "RandomNormalLike"}]},
        graph=lambda rank: tmp_path / "rank.onnx",
    )
    seeded = add_seeds(tmp_path / "model.onnx", plan)  # type: ignore[arg-type]
    assert seeded is not None
    found = onnx.load_model_from_string(seeded)
    assert not found.functions
    assert [node.op_type for node in found.graph.node] == ["RandomNormalLike"] * 2
    seeds = [helper.get_node_attr_value(node, "seed") for node in found.graph.node]
    assert seeds == [3.0, 4.0]
