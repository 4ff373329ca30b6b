"""What a plan does and why: its parts add up to what was predicted, and have the right names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from importer.models import F32, model, node, saved, untyped, value
from onnx import numpy_helper

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.objectives import frontier
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.report.explain.explain import explain
from tensoropt.compiler.report.explain.text import explanation_text
from tensoropt.compiler.report.explanation import Explanation, Layer
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.search.frontier.steps import read_graphs
from tensoropt.compiler.support.units import format_bytes
from tensoropt.runtime.plan.layers import numbered_scopes, repeats

MODELS = Path(__file__).parents[1] / "models"


def planned(model: str, **request: object) -> list[FrontierPoint]:
    module = driver.load(MODELS / model, {})
    driver.advance(module, "rules")
    return list(frontier(read_graphs(module), Request(**request)).points)  # type: ignore[arg-type]


def explained(points: list[FrontierPoint], index: int) -> Explanation:
    return explain(points[index], points, "model.onnx", "cpu")


@pytest.fixture(scope="module")
def megatron() -> Explanation:
    return explained(planned("gpt2_tiny.onnx", devices=2, search="expert"), 0)


@pytest.fixture(scope="module")
def free() -> list[FrontierPoint]:
    return planned("gpt2_tiny.onnx", devices=4, mesh="2x2", epsilon=0.001)


@pytest.mark.parametrize("index", [0, 1, -1])
def test_the_parts_add_up_to_what_was_predicted(free: list[FrontierPoint], index: int) -> None:
    point, found = free[index], explained(free, index)
    times = [entry.time_s for entry in found.timeline]
    sent = [e.time_s for e in found.timeline if e.kind in ("collective", "copy")]
    assert sum(times) == pytest.approx(point.time_s, rel=1e-9)
    assert sum(sent) == pytest.approx(point.communication_s, rel=1e-9)
    assert found.timeline[-1].end_s == pytest.approx(point.time_s, rel=1e-9)
    layers = sum(layer.time_s * layer.count for layer in found.layers)
    overhead = sum(e.time_s for e in found.timeline if e.kind == "overhead")
    assert layers + overhead == pytest.approx(point.time_s, rel=1e-9)
    assert sum(t.bytes for t in found.memory.kept) == point.static_bytes
    assert sum(found.memory.static_parts.values()) == point.static_bytes
    assert sum(t.bytes for t in found.memory.alive) == point.transient_bytes
    assert max(entry.memory_bytes for entry in found.timeline) == point.memory_bytes
    parts = found.memory.static_bytes, found.memory.transient_bytes, found.memory.beside_bytes
    assert sum(parts) == found.process_bytes == point.process_bytes > point.memory_bytes
    whole, beside = format_bytes(point.process_bytes), format_bytes(found.memory.beside_bytes)
    text = explanation_text(found)
    assert f" and {whole} per device\n" in text
    assert re.search(f"process memory: static .*, transient .*, beside tensors {beside}\n", text)


def test_measured_parts_have_a_share_of_the_time() -> None:
    points = planned("gpt2_tiny.onnx", devices=2, device="h100", search="expert")
    found = explained(points, 0)
    assert set(found.parts_s) == {"products", "collectives"}
    products = [e.time_s for e in found.timeline if e.op.endswith(("MatMul", "Gemm"))]
    assert found.parts_s["products"] == pytest.approx(sum(products))
    assert 0.1 < sum(found.part_shares.values()) < 1.0
    assert not explained(planned("gpt2_tiny.onnx", devices=2, search="expert"), 0).parts_s


def _block(explanation: Explanation) -> Layer:
    (block,) = (layer for layer in explanation.layers if layer.count == 2)
    return block


def test_megatron_has_columns_then_rows_and_two_sums_per_layer(megatron: Explanation) -> None:
    block = _block(megatron)
    assert [m.name for m in block.members] == ["m.transformer.h.0", "m.transformer.h.1"]
    splits = {op.weights[0]: op.splits[0] for op in block.operations if op.main and op.weights}
    of = "m.transformer.h.0."
    assert splits[of + "attn.c_attn.weight"].how == "column split"
    assert splits[of + "attn.c_proj.weight"].how == "row split"
    assert splits[of + "attn.c_proj.weight"].sums
    assert splits[of + "mlp.c_fc.weight"].text == (
        f"column split of {of}mlp.c_fc.weight over x (output features)"
    )
    assert splits[of + "mlp.c_proj.weight"].how == "row split"
    attention = [op.text for op in block.operations if op.main and not op.weights]
    assert attention == ["split by heads over x"] * 2
    sums = [c.producer for c in block.communication if c.kind == "all_reduce"]
    assert sums == ["node_Gemm_281", "node_Gemm_283"]
    assert all("partial sums" in c.why for c in block.communication if c.kind == "all_reduce")


def test_a_recurrent_network_is_split_by_directions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (2, 256, 64), "r": (2, 256, 64)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    attributes = {"hidden_size": 64, "direction": "bidirectional"}
    lstm = node("LSTM", ["x", "w", "r"], ["y"], name="lstm", **attributes)
    proto = model([lstm], [value("x", F32, [64, 1, 64])], [untyped("y")], weights)
    points = planned(str(saved(proto, tmp_path)), devices=2)
    (op,) = (op for op in explained(points, 0).layers[0].operations if op.weights)
    assert [split.text for split in op.splits] == ["split by directions of w over x"]


def test_a_neighbour_says_what_it_does_otherwise(free: list[FrontierPoint]) -> None:
    first, last = explained(free, 0), explained(free, len(free) - 1)
    assert first.faster is None
    assert last.leaner is None
    assert first.leaner is not None
    assert first.leaner.index == 1
    assert first.leaner.time_s > first.time_s
    assert first.leaner.memory_bytes < first.memory_bytes
    changes = [(change.before, change.after) for change in first.leaner.changes]
    assert changes or first.leaner.others
    assert all(before != after for before, after in changes)


def test_layers_are_found_by_names_or_by_what_repeats() -> None:
    assert numbered_scopes(["/m/h.0/a/Mul", "/m/h.1/a/Mul", "/m/Add", "x", "/n/h.0/Add"]) == [
        "m/h.0",
        "m/h.1",
        None,
        None,
        None,
    ]
    assert numbered_scopes(["/layer1/layer1.0/Conv", "/layer1/layer1.1/Conv"]) == [
        "layer1/layer1.0",
        "layer1/layer1.1",
    ]
    assert repeats("xxabcdabcdabcdyefghefgh") == [(2, 4, 3), (15, 4, 2)]
    assert repeats("abcdefgh") == []


def test_layers_that_differ_are_found_by_the_names_of_weights(tmp_path: Path) -> None:
    widths = {"body.0.weight": (64, 128), "body.1.weight": (128, 32), "body.2.weight": (32, 8)}
    weights = [numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in widths.items()]
    values = ["x", "a", "b", "c"]
    nodes = [
        node("MatMul", [before, weight], [after], name=f"product_{after}")
        for before, weight, after in zip(values, widths, values[1:], strict=False)
    ]
    proto = model(nodes, [value("x", F32, [16, 64])], [untyped("c")], weights)
    layers = explained(planned(str(saved(proto, tmp_path)), devices=1), 0).layers
    assert [member.name for layer in layers for member in layer.members] == [
        *("body.0", "body.1", "body.2")
    ]


def test_experts_are_split_by_experts(tmp_path: Path) -> None:
    """A product of weights with three dimensions is one for each expert: no columns are cut."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", kind, [1, 64, 64])
    y = helper.make_tensor_value_info("y", kind, [8, 64, 128])
    weight = onnx.numpy_helper.from_array(np.ones((8, 64, 128), np.float32), "experts.w1")
    node = helper.make_node("MatMul", ["x", "experts.w1"], ["y"], name="w1")
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    opsets = [helper.make_opsetid("", 20)]
    path = tmp_path / "moe.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    module = driver.load(path, {})
    driver.advance(module, "rules")
    points = list(frontier(read_graphs(module), Request(devices=2, epsilon=0.0)).points)
    texts = [explanation_text(explained(points, index)) for index in range(len(points))]
    assert any("split by experts of experts.w1 over x" in text for text in texts)
