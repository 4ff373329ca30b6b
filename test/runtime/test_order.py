"""The order of a plan's graph is the one in which ONNX Runtime runs it, fused nodes among them."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.session import order
from tensoropt.runtime.session.session import rank_session, training_session
from tensoropt.runtime.session.wire import Node, nodes_of, with_nodes
from tensoropt.runtime.support.ordering import ORDERED

BRANCHES, WIDTH = 4, 16


def branches(path: Path, *, marked: bool = True) -> onnx.ModelProto:
    """Write branches that run one after the other; in each a product and a sum become one node."""
    nodes, total = [], "x"
    for n in range(BRANCHES):
        nodes += [
            node("Mul", ["x", f"w{n}"], f"scaled{n}"),
            node("MatMul", [f"scaled{n}", f"w{n}"], f"product{n}"),
            node("Add", [f"product{n}", "b"], f"sum{n}"),
            node("Sin", [f"sum{n}"], f"sin{n}"),
            node("Mul", [f"sin{n}", total], f"total{n}"),
        ]
        total = f"total{n}"
    rng = np.random.default_rng(0)
    weights = {f"w{n}": rng.random((WIDTH, WIDTH)) for n in range(BRANCHES)}
    weights["b"] = rng.random(WIDTH)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (WIDTH, WIDTH))],
        [helper.make_tensor_value_info(total, TensorProto.FLOAT, (WIDTH, WIDTH))],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    if marked:
        model.metadata_props.add(key=ORDERED, value="1")
    onnx.save(model, path)
    return model


def node(op_type: str, inputs: Sequence[str], output: str) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], name=output)


def read(*nodes: onnx.NodeProto) -> list[Node]:
    """What is read of nodes from the bytes of a model."""
    graph = helper.make_graph(nodes, "g", [], [])
    return nodes_of(helper.make_model(graph).SerializeToString())


def names_run(trace: Path, graph: Path) -> list[str]:
    """Return what ran, in order."""
    session = rank_session(graph, 1, trace)
    session.feed("x", np.ones((WIDTH, WIDTH), np.float32))
    session.run()
    events = json.loads(Path(session._session.end_profiling()).read_text())
    ends = "_kernel_time"
    return [e["name"].removesuffix(ends) for e in events if e["name"].endswith(ends)]


def test_nodes_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    given = branches(tmp_path / "m.onnx")
    run = names_run(tmp_path / "trace", tmp_path / "m.onnx")
    assert len(run) == 4 * BRANCHES, "a product and a sum are one node"
    kept = [node.name for node in given.graph.node if node.name in run]
    assert [name for name in run if name in kept] == kept
    fused = [at for at, name in enumerate(run) if name not in kept]
    assert fused == [1 + 4 * n for n in range(BRANCHES)]


def test_one_without_a_mark_runs_as_onnx_runtime_likes(tmp_path: Path) -> None:
    """If marking it changes nothing, ONNX Runtime has learnt to keep orders: `order.py` can go."""
    given = branches(tmp_path / "m.onnx", marked=False)
    run = names_run(tmp_path / "trace", tmp_path / "m.onnx")
    kept = [node.name for node in given.graph.node if node.name in run]
    assert [name for name in run if name in kept] != kept


def test_what_is_computed_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = branches(path)
    x = np.random.default_rng(1).random((WIDTH, WIDTH)).astype(np.float32)
    found = []
    for session in (rank_session(path, 1), training_session(path, 1)):
        session.feed("x", x)
        session.run()
        found.append(session.fetch()[model.graph.output[0].name])
    *weights, b = (numpy_helper.to_array(t) for t in model.graph.initializer)
    wanted = x
    for w in weights:
        wanted = np.sin((x * w) @ w + b) * wanted
    for y in found:
        np.testing.assert_allclose(y, wanted, 1e-4, 1e-6)


def test_constants_that_onnx_runtime_makes_are_what_it_makes_them(tmp_path: Path) -> None:
    """The filter is laid out anew for convolutions, in memory that is the session's own."""
    path = tmp_path / "m.onnx"
    rng = np.random.default_rng(0)
    filters = rng.random((16, 16, 3, 3)).astype(np.float32)
    x = rng.random((1, 16, 8, 8)).astype(np.float32)
    graph = helper.make_graph(
        [node("Conv", ["x", "w"], "y")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 16, 6, 6))],
        [numpy_helper.from_array(filters, "w")],
    )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model.metadata_props.add(key=ORDERED, value="1")
    onnx.save(model, path)
    session = rank_session(path, 1)
    gc.collect()
    session.feed("x", x)
    session.run()
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    wanted = np.einsum("chwij,ocij->ohw", windows, filters)
    np.testing.assert_allclose(session.fetch()["y"][0], wanted, 1e-5)


def test_new_nodes_stand_before_the_first_that_reads_them() -> None:
    given = [node("Relu", ["x"], "a"), node("Neg", ["x"], "b"), node("Add", ["a", "b"], "c")]
    made = [
        node("Cast", ["x"], "new"),
        node("Neg", ["new"], "b"),
        node("Relu", ["x"], "a_nchwc"),
        helper.make_node("Add", ["a_nchwc", "b"], ["c"], name="c/Fusion/"),
    ]
    found = order.restore_order(read(*made), read(*given))
    assert [one.makes[0] for one in found] == ["a_nchwc", "new", "b", "c"]


def test_what_equal_nodes_became_stands_where_the_first_stood() -> None:
    given = [node("Neg", ["x"], "a"), node("Relu", ["a"], "b"), node("Neg", ["x"], "c")]
    given += [node("Add", ["b", "c"], "d")]
    made = [node("Neg", ["x"], "c"), node("Relu", ["c"], "b"), node("Add", ["b", "c"], "d")]
    extra = node("Tanh", ["x"], "e")
    found = order.restore_order(read(*made, extra), read(*given[:2], extra, *given[2:]))
    assert [one.makes[0] for one in found] == ["c", "b", "e", "d"]


def test_a_body_reads_what_comes_before_it() -> None:
    body = helper.make_graph(
        [node("Neg", ["late"], "inner")],
        "body",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    branch = helper.make_node("If", ["x"], ["a"], name="a", then_branch=body, else_branch=body)
    made = [node("Relu", ["x"], "late"), branch]
    given = [branch, node("Relu", ["x"], "late")]
    found = order.restore_order(read(*made), read(*given))
    assert [one.makes[0] for one in found] == ["late", "a"]


def test_only_the_order_of_nodes_changes(tmp_path: Path) -> None:
    model = branches(tmp_path / "m.onnx")
    made = model.SerializeToString()
    changed = onnx.load_model_from_string(with_nodes(made, nodes_of(made)[::-1]))
    assert changed != model
    nodes = list(changed.graph.node)[::-1]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    assert changed == model


def test_a_rank_that_keeps_an_order_does_without_the_package_onnx(tmp_path: Path) -> None:
    branches(tmp_path / "m.onnx")
    text = """
import sys
from pathlib import Path
from tensoropt.runtime.session.session import rank_session
rank_session(Path(sys.argv[1]), 1)
assert "onnx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", text, tmp_path / "m.onnx"], check=True)


@pytest.mark.parametrize("marked", [False, True])
def test_a_normalisation_after_an_addition_stays_one(tmp_path: Path, marked: bool) -> None:
    """ONNX Runtime's node for both takes several times as long as the two of them."""
    nodes = [
        node("Add", ["x", "x2"], "sum"),
        node("LayerNormalization", ["sum", "scale", "scale"], "normal"),
        node("MatMul", ["normal", "w"], "y"),
    ]
    shape, values = (1, WIDTH, WIDTH), {"w": (WIDTH, WIDTH), "scale": (WIDTH,)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "x2")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ones(s, np.float32), name) for name, s in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    if marked:
        model.metadata_props.add(key=ORDERED, value="1")
    onnx.save(model, tmp_path / "m.onnx")
    session = rank_session(tmp_path / "m.onnx", 1, tmp_path / "trace")
    session._session.end_profiling()
    kinds = [own.op_type for own in onnx.load(tmp_path / "trace.onnx").graph.node]
    assert kinds == ["Add", "LayerNormalization", "MatMul"]
