"""The original model with a plan in its metadata."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper

import tensoropt as to
from tensoropt.compiler.report.netron import check_netron_path

MODELS = Path(__file__).parents[1] / "models"


def said(what) -> dict[str, str]:
    return {entry.key: entry.value for entry in what.metadata_props}


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    return Path(shutil.copy(MODELS / "gpt2_tiny.onnx", tmp_path / "gpt2.onnx"))


def test_nodes_and_weights_say_what_the_plan_does(gpt2: Path) -> None:
    before, target = gpt2.read_bytes(), gpt2.with_name("a.onnx")
    point = to.load(gpt2).frontier(devices=2, search="expert").fastest
    found, nodes = point.netron(target)
    assert nodes == len(onnx.load(gpt2).graph.node) == found + 1
    onnx.checker.check_model(str(target), full_check=True)
    model = onnx.load(target)
    assert said(model)["tensoropt.mesh"] == "2"
    rows = {node.name: said(node) for node in model.graph.node}
    splits = {row.get("tensoropt.split", "") for row in rows.values()}
    assert any(text.startswith("column split of ") for text in splits)
    assert any(text.startswith("row split of ") for text in splits)
    sent = [row["tensoropt.before.0"] for row in rows.values() if "tensoropt.before.0" in row]
    assert any(text.startswith("all_reduce of 32.0 KiB over x, ") for text in sent)
    weights = {tensor.name: said(tensor) for tensor in model.graph.initializer}
    assert weights["m.transformer.h.0.mlp.c_fc.weight"]["tensoropt.lies"].startswith("split by")
    assert gpt2.read_bytes() == before
    assert target.stat().st_size < gpt2.stat().st_size / 2
    assert [tensor.dims for tensor in model.graph.initializer] == [
        tensor.dims for tensor in onnx.load(gpt2).graph.initializer
    ]


def test_large_weights_are_found_beside_the_model_alone(gpt2: Path) -> None:
    (gpt2.parent / "other").mkdir()
    point = to.load(gpt2).frontier(devices=2, search="expert").fastest
    with pytest.raises(to.UserError, match=f"expected a file in {gpt2.parent}"):
        point.netron(gpt2.parent / "other" / "a.onnx")
    for path, message in ((gpt2, "the model itself"), (gpt2.with_suffix(".txt"), "ending in")):
        with pytest.raises(to.UserError, match=message):
            check_netron_path(path, gpt2)


def test_what_an_earlier_plan_said_is_replaced(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch(1), else_branch=branch(2)),
        helper.make_node("Add", ["y", "x"], ["z"]),
    ]
    nodes[1].metadata_props.add(key="tensoropt.old", value="1")
    nodes[1].metadata_props.add(key="mine", value="2")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xz"]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [ends[0], condition], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    frontier = to.load(tmp_path / "m.onnx").frontier(devices=2)
    assert frontier.fastest.netron(tmp_path / "a.onnx") == (2, 2)
    onnx.checker.check_model(str(tmp_path / "a.onnx"))
    made = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    assert said(made.graph.node[1])["mine"] == "2"
    assert "tensoropt.old" not in said(made.graph.node[1])
    inner = made.graph.node[0].attribute[0].g.node[0].attribute[0].t
    entries = external_data_helper.ExternalDataInfo(inner)
    assert (entries.location, entries.length) == ("m.onnx", 64 * 64 * 4)


def branch(value: int) -> onnx.GraphProto:
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [64, 64], bytes(4 * 64 * 64), raw=True)
    node = helper.make_node("Constant", [], [f"y{value}"], value=tensor)
    result = helper.make_tensor_value_info(f"y{value}", TensorProto.FLOAT, [64, 64])
    return helper.make_graph([node], f"b{value}", [], [result])
