"""Weights that a file holds twice, the second time transposed: one parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from emitted_memory import emitted_memory
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.pipeline import driver
from tensoropt.dialects.onnx import arguments, function
from tensoropt.runtime.inference.jobs import check_plans

pytestmark = pytest.mark.usefixtures("mlir_context")

WORDS, WIDTH = 640, 48
TABLE = np.random.default_rng(0).standard_normal((WORDS, WIDTH)).astype(np.float32)

Array = np.ndarray[Any, Any]


def saved(path: Path, turned: Array, table: Array = TABLE, **options: Any) -> Path:
    """Write an embedding by ``table``, and scores by ``turned``; both may be external data."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Relu", ["e"], ["r"]),
        node("MatMul", ["r", "turned"], ["y"]),
        *options.pop("more", ()),
    ]
    tensors = {"table": table, "turned": turned}
    element = helper.np_dtype_to_tensor_dtype(table.dtype)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 8])],
        [helper.make_tensor_value_info("y", element, [2, 8, turned.shape[1]])],
        [numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(model, path, **options)
    return path


def parameters(path: Path, *, training: bool = False) -> list[str]:
    module = driver.load(path, {}, training=training)
    held = [own for _, own in arguments(function(module)) if "topt.param" in own]
    return [own["topt.name"].value for own in held]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_a_copy_is_no_parameter(dtype: str, external: bool, tmp_path: Path) -> None:
    table = TABLE.astype(dtype)
    there = {"save_as_external_data": True, "location": "w.bin"} if external else {}
    path = saved(tmp_path / "m.onnx", table.T, table, **there)
    assert parameters(path) == ["table"]


def _but_one(turned: Array) -> Array:
    changed = turned.copy()
    changed[-2, -2] = np.nextafter(changed[-2, -2], 2.0)
    return changed


@pytest.mark.parametrize(
    ("turned", "table"),
    [
        (_but_one(TABLE.T), TABLE),
        (np.zeros((WIDTH, WORDS), np.float32), np.zeros((WORDS, WIDTH), np.float32)),
        (TABLE.T[:, :-1], TABLE),
    ],
    ids=["one element", "one number", "another shape"],
)
def test_what_is_no_copy(turned: Array, table: Array, tmp_path: Path) -> None:
    assert parameters(saved(tmp_path / "m.onnx", turned, table)) == ["table", "turned"]


def test_what_is_read_as_it_is(tmp_path: Path) -> None:
    more = [helper.make_node("Neg", ["turned"], ["n"])]
    assert parameters(saved(tmp_path / "m.onnx", TABLE.T, more=more)) == ["table", "turned"]


def test_what_is_small(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path, TABLE.T)
    model = onnx.load(path)
    large = np.ones((200 * WORDS, WIDTH), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(large, "large"))
    model.graph.node.append(helper.make_node("ReduceSum", ["large"], ["s"]))
    onnx.save(model, path)
    assert parameters(path) == ["table", "turned", "large"]


def test_training_leaves_them_apart(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", TABLE.T)
    assert parameters(path, training=True) == ["table", "turned"]


def test_each_rank_holds_its_part_once(tmp_path: Path) -> None:
    path, plans = saved(tmp_path / "m.onnx", TABLE.T), []
    for pick in ("fastest", "leanest"):
        plans.append(tmp_path / pick)
        flags = ["--devices=2", "--device=h200", "--pick", pick, "-o", str(plans[-1])]
        assert main([str(path), *flags]) == 0
    assert all(result.passed for result in check_plans(plans, path, threads=1, timeout_s=120))
    static = [emitted_memory(plan / "rank0.onnx").static_bytes for plan in plans]
    assert static[0] <= 1.5 * TABLE.nbytes  # the whole for the embedding, of it half for the scores
    assert static[1] < 0.51 * TABLE.nbytes


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "m.onnx", TABLE.T)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(np, "memmap", refuse)
    assert parameters(path) == ["table", "turned"]
