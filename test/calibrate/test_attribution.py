"""Whose time it was: graphs as given, and as ONNX Runtime runs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.calibrate.attribution import attribute
from tensoropt.compiler.calibrate.features import NodeFacts, read_facts
from tensoropt.compiler.calibrate.graphs import operators, update
from tensoropt.compiler.calibrate.plans import prepare_model
from tensoropt.compiler.program.costs import context
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.frontier.steps import read_graphs

IMAGE = [1, 8, 6, 6]


def node(op_type: str, name: str, reads: str, makes: str, domain: str = "") -> onnx.NodeProto:
    operands, results = reads.split(), makes.split()
    return helper.make_node(op_type, operands, results, name=name, domain=domain)


def saved(path: Path, nodes: Sequence[onnx.NodeProto], *outputs: str) -> Path:
    """Write a graph that reads x of [1, 8, 6, 6] and weights w of [8, 8, 1, 1] and s of [8]."""
    weights = [("w", (8, 8, 1, 1)), ("s", (8,))]
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, IMAGE) for name in outputs],
        [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    own = all(held.domain in ("", "tensoropt") for held in nodes)  # of others nothing is known
    onnx.save(onnx.shape_inference.infer_shapes(model) if own else model, path)
    return path


BLOCK = [
    node("Conv", "conv", "x w", "c"),
    node("BatchNormalization", "norm", "c s s s s", "b"),
    node("Relu", "relu", "b", "r"),
    node("Add", "add", "r x", "y"),
]


@pytest.fixture
def facts(tmp_path: Path) -> list[NodeFacts]:
    return read_facts(saved(tmp_path / "given.onnx", BLOCK, "y"))


def shares(facts: Sequence[NodeFacts], ran: Path, **times: float) -> dict[str, float]:
    return {held.facts.name: held.time_s for held in attribute(facts, ran, times) if held.time_s}


def test_facts_say_what_the_cost_model_knows(facts: list[NodeFacts]) -> None:
    assert [held.work.operator for held in facts] == [own.op_type for own in BLOCK]
    assert [held.context for held in facts] == [(), ("Conv",), ("BatchNormalization",), ("Relu",)]
    assert facts[0].work.flops == 2 * 8 * 8 * 36
    assert facts[0].work.bytes == 4 * (2 * 8 * 36 + 64)


def test_one_node_of_several_is_the_time_of_what_computes(
    facts: list[NodeFacts], tmp_path: Path
) -> None:
    fused = node("FusedConv", "one", "x w s", "r", "com.microsoft")
    ran = saved(tmp_path / "ran.onnx", [fused, node("Add", "add", "r x", "y")], "y")
    assert shares(facts, ran, one=5.0, add=1.0) == {"conv": 5.0, "add": 1.0}


def test_a_blocked_node_is_known_by_its_name(facts: list[NodeFacts], tmp_path: Path) -> None:
    nodes = [
        node("ReorderInput", "", "x", "blocked", "com.microsoft.nchwc"),
        node("Conv", "r_nchwc", "blocked w s", "reorder_token_1", "com.microsoft.nchwc"),
        node("ReorderOutput", "", "reorder_token_1", "r", "com.microsoft.nchwc"),
        node("Add", "add", "r x", "y"),
    ]
    ran = saved(tmp_path / "ran.onnx", nodes, "y")
    times = {"ReorderInput_7": 0.25, "r_nchwc": 5.0, "ReorderOutput_9": 0.5, "add": 1.0}
    assert shares(facts, ran, **times) == {"conv": 5.25, "add": 1.5}


def test_a_blocked_normalisation_is_known_by_its_name(
    facts: list[NodeFacts], tmp_path: Path
) -> None:
    nodes = [
        node("Conv", "c_nchwc", "x w", "reorder", "com.microsoft.nchwc"),
        node("Conv", "b_bn_nchwc_token_3", "reorder w", "reorder_token_1", "com.microsoft.nchwc"),
        node("Relu", "relu", "reorder_token_1", "reorder_token_2"),
        node("Add", "add", "reorder_token_2 x", "y"),
    ]
    ran = saved(tmp_path / "ran.onnx", nodes, "y")
    times = {"c_nchwc": 5.0, "b_bn_nchwc_token_3": 2.0, "relu": 1.0, "add": 0.5}
    assert shares(facts, ran, **times) == {"conv": 5.0, "norm": 2.0, "relu": 1.0, "add": 0.5}


def test_a_node_whose_result_is_renamed_is_known_by_its_name(tmp_path: Path) -> None:
    given = [
        node("Conv", "conv", "x w", "c"),
        helper.make_node("Concat", ["c", "x"], ["j"], name="join", axis=2),
        helper.make_node("MaxPool", ["j"], ["y"], name="pool", kernel_shape=[2, 1], strides=[2, 1]),
    ]
    facts = read_facts(saved(tmp_path / "given.onnx", given, "y"))
    nodes = [
        node("Conv", "c_nchwc", "x w", "reorder_token_1", "com.microsoft.nchwc"),
        node("Concat", "join", "reorder_token_1 x", "reorder_token_2"),
        node("MaxPool", "y_nchwc", "reorder_token_2", "reorder_token_3", "com.microsoft.nchwc"),
        node("ReorderOutput", "back", "reorder_token_3", "y", "com.microsoft.nchwc"),
    ]
    ran = saved(tmp_path / "ran.onnx", nodes, "y")
    times = {"c_nchwc": 5.0, "join": 2.0, "y_nchwc": 1.0, "back": 0.5}
    assert shares(facts, ran, **times) == {"conv": 5.0, "join": 2.0, "pool": 1.5}


def test_what_is_only_returned_keeps_its_owner(tmp_path: Path) -> None:
    given = [node("Relu", "relu", "x", "inner"), node("Identity", "named", "inner", "y")]
    facts = read_facts(saved(tmp_path / "given.onnx", given, "y"))
    ran = saved(tmp_path / "ran.onnx", [node("Relu", "relu", "x", "y")], "y")
    assert shares(facts, ran, relu=2.0) == {"relu": 2.0}


def test_a_group_without_a_product_is_the_time_of_its_last(
    facts: list[NodeFacts], tmp_path: Path
) -> None:
    nodes = [
        node("Conv", "conv", "x w", "c"),
        node("Anything", "rest", "c x s", "y", "com.microsoft"),
    ]
    ran = saved(tmp_path / "ran.onnx", nodes, "y")
    assert shares(facts, ran, conv=5.0, rest=2.0) == {"conv": 5.0, "add": 2.0}


def test_collectives_are_context_but_no_samples(tmp_path: Path) -> None:
    reduce = node("AllReduce", "sum", "c t0", "a t1", "tensoropt")
    reduce.attribute.append(helper.make_attribute("group", [0, 1]))
    nodes = [node("Conv", "conv", "x w", "c"), reduce, node("Relu", "relu", "a", "y")]
    path = saved(tmp_path / "given.onnx", nodes, "y")
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "t0"))
    for name, kind, shape in (("a", TensorProto.FLOAT, IMAGE), ("t1", TensorProto.INT64, [1])):
        model.graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))
    onnx.save(model, path)
    facts = read_facts(path)
    assert [held.name for held in facts] == ["conv", "relu"]
    assert facts[1].context == ("tensoropt.AllReduce",)


def test_operands_that_are_alike_are_one_context(tmp_path: Path) -> None:
    """What is true after two operators is so after four."""
    parts = [node("Relu", f"relu{n}", "x", f"r{n}") for n in range(3)]
    joined = helper.make_node("Concat", ["r0", "r1", "r2"], ["y"], name="join", axis=1)
    graph = saved(tmp_path / "given.onnx", [*parts, joined], "y")
    assert read_facts(graph)[-1].context == ("Relu",)
    model = prepare_model(graph, {}).module
    [read] = read_graphs(model).values()
    [join] = [own for own in read.nodes if isinstance(own, Op) and own.name == "join"]
    assert context(read, join) == ("Relu",)


PARTS = {
    ("Add", ("MatMul",)),
    ("Add", ("ReduceMean",)),
    ("Sqrt", ("Add",)),
    ("Div", ("Add", "Sqrt")),
    ("Mul", ("", "Div")),
    ("Mul", ("MatMul", "Sigmoid")),
    ("Mul", ("Transpose",)),
}


def test_an_update_is_one_pass_over_what_it_reads_and_writes(tmp_path: Path) -> None:
    path = update(tmp_path / "update.onnx", [1000, 300])
    [fact] = read_facts(path)
    assert (fact.work.operator, fact.work.dtype) == ("tensoropt.Elementwise", "float32")
    scalars = 5
    assert fact.work.bytes == 4 * (7 * 1300 + scalars)
    assert shares([fact], path, **{fact.name: 2.0}) == {fact.name: 2.0}


def test_common_operators_know_the_kernels_of_transformers(tmp_path: Path) -> None:
    """What is part of another there takes no time in a model that was not measured either."""
    import onnxruntime

    [given, *_] = operators(tmp_path, "float32", (16,))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "ran.onnx")
    onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    ran = onnx.load(tmp_path / "ran.onnx").graph.node
    found = attribute(read_facts(given), tmp_path / "ran.onnx", {own.name: 1.0 for own in ran})
    parts = {(own.facts.work.operator, own.facts.context) for own in found if not own.time_s}
    assert parts >= PARTS
