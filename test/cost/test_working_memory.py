"""Memory that ONNX Runtime's kernels take beyond the tensors of a graph, and that views do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main as opt
from tensoropt.compiler.cost.memory import RankMemory, program_memory
from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.pipeline.driver import new_context

ROWS, COUNT, WIDTH = 512, 4096, 1024


def memory_of(
    folder: Path, nodes: list[onnx.NodeProto], **inputs: tuple[int, list[int]]
) -> RankMemory:
    """Return the memory of a graph from ``inputs`` (element type and sizes) to ``y``."""
    infos = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
    y = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph(nodes, "graph", infos, [y])
    opsets = [helper.make_opsetid("", 20)]
    path = folder / "graph.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    with new_context():
        return program_memory(import_model(path))


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
def test_scattered_elements_have_a_copy_of_their_indices(kind: int, tmp_path: Path) -> None:
    sizes, item = [24, 8], 4 if kind == TensorProto.INT32 else 8
    node = helper.make_node("ScatterElements", ["x", "at", "u"], ["y"], reduction="add")
    float32 = TensorProto.FLOAT
    found = memory_of(tmp_path, [node], x=(float32, [3, 8]), at=(kind, sizes), u=(float32, sizes))
    assert found.transient_bytes == 2 * 4 * 3 * 8 + (4 + item) * 24 * 8
    assert found.working_bytes == found.transient_bytes + 8 * 24 * 8


def test_a_view_takes_no_memory_if_nothing_else_reads_its_operand(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"], axis=0),
        helper.make_node("ReduceSum", ["f"], ["y"]),
    ]
    found = memory_of(tmp_path, nodes, x=(TensorProto.FLOAT, [4, 8, 8]))
    assert found.working_bytes == found.transient_bytes == 2 * 4 * 4 * 8 * 8
    nodes[2] = helper.make_node("Sum", ["f", "e2"], ["y"])
    nodes.insert(2, helper.make_node("Flatten", ["e"], ["e2"], axis=0))
    found = memory_of(tmp_path, nodes, x=(TensorProto.FLOAT, [4, 8, 8]))
    assert found.working_bytes == found.transient_bytes


def gathered(path: Path, rows: int) -> None:
    """Write a model that gathers a row of a table for each number, and a batch of numbers."""
    table = np.random.default_rng(0).standard_normal((rows, WIDTH), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["rows"], name="rows"),
        helper.make_node("Mul", ["rows", "rows"], ["squares"], name="squares"),
        helper.make_node("ReduceMean", ["squares"], ["y"], keepdims=0, name="y"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [COUNT])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    held = [numpy_helper.from_array(table, "table")]
    graph = helper.make_graph(nodes, "gathered", [x], [y], held)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    np.savez(path.with_suffix(".npz"), x=np.arange(COUNT) % rows)


@pytest.mark.parametrize("rows", [8, ROWS])
def test_a_step_that_adds_rows_takes_no_more_than_predicted(rows: int, tmp_path: Path) -> None:
    """As a mixture of experts does, which gathers weights for each token, and an embedding."""
    model, plan = tmp_path / "model.onnx", tmp_path / "plan"
    gathered(model, rows)
    step = ["--train", "--loss", "output:y", "--optimizer", "sgd", "--devices", "1"]
    assert opt([str(model), *step, "-o", str(plan)]) == 0
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    assert any(n.op_type == "ScatterElements" for n in graph.node) == (rows == ROWS)
    tool = "import sys; from tensoropt.runtime.cli.run import main; sys.exit(main())"
    data = str(model.with_suffix(".npz"))
    flags = ["--train", "--data", data, "--steps", "2", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-c", tool, str(plan), *flags], check=True, capture_output=True, text=True
    )
    found, predicted = json.loads(done.stdout), json.loads((plan / "plan.json").read_text())
    whole = predicted["predicted"]["process_bytes"]
    assert 0.75 * whole <= found["peak_bytes"] <= 1.02 * whole
