"""What importing a large model must not spend its time on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.shapes import onnx_inference
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function

pytestmark = pytest.mark.usefixtures("mlir_context")

_FLOAT = TensorProto.FLOAT


def _write(path: Path, nodes: list[onnx.NodeProto], shape: list[Any]) -> Path:
    ends = [helper.make_tensor_value_info(name, _FLOAT, shape) for name in "xy"]
    ends[1].type.tensor_type.ClearField("shape")
    ends[1].type.tensor_type.shape.dim.add()
    size = numpy_helper.from_array(np.array([3, -1]), "size")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [size])
    opset = [helper.make_opsetid("", 20)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())
    return path


def _reshape(size: str) -> onnx.NodeProto:
    return helper.make_node("Reshape", ["x", size], ["y"], name="reshape")


def _propagations(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that tells of every inference whether it propagates values."""
    seen: list[bool] = []
    run = onnx_inference.run

    def spy(proto: onnx.ModelProto, *, strict: bool, values: bool) -> onnx.ModelProto:
        seen.append(values)
        return run(proto, strict=strict, values=values)

    monkeypatch.setattr(onnx_inference, "run", spy)
    return seen


def test_values_are_not_propagated_where_shapes_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _propagations(monkeypatch)
    module = driver.load(_write(tmp_path / "m.onnx", [_reshape("size")], [6, 4]), {})
    driver.run_phase(module, "prepare")
    assert "tensor<3x8xf32>" in str(module)
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("shape", [[6, 4], ["n", 4]])
def test_values_are_propagated_where_a_size_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: list[Any]
) -> None:
    seen = _propagations(monkeypatch)
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], name="shape", start=1),
        helper.make_node("Concat", ["minus", "sizes"], ["wanted"], name="wanted", axis=0),
        _reshape("wanted"),
    ]
    minus = numpy_helper.from_array(np.array([-1]))
    nodes.insert(0, helper.make_node("Constant", [], ["minus"], name="minus", value=minus))
    module = driver.load(_write(tmp_path / "m.onnx", nodes, shape), {})
    returned = list(function(module).regions[0].blocks[0].operations)[-1].operands[0]
    assert list(ir.RankedTensorType(returned.type).shape)[1] == 4
    assert any(seen)


def test_looking_at_operations_searches_for_no_module(tmp_path: Path) -> None:
    """The bindings look for the classes of a dialect; in vain is once per operation."""
    module = driver.load(_write(tmp_path / "m.onnx", [_reshape("size")], [6, 4]), {})
    searched: list[str] = []

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            searched.append(name)

    block = function(module).regions[0].blocks[0]
    _ = [op.operation.name for op in block]
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    try:
        names = [op.operation.name for op in block]
    finally:
        sys.meta_path.remove(Finder)  # type: ignore[arg-type]
    assert "onnx.Reshape" in names
    assert searched == []
