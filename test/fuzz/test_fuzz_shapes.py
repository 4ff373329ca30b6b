"""A sample of the comparison of shapes with ONNX Runtime's, and what it once found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fuzz_shapes as shapes
import numpy as np
import onnx
import pytest
from fuzz_shapes import CASES, Case, cases, difference, node
from onnx import TensorProto, helper

from tensoropt.compiler.pipeline.driver import load, run_phase
from tensoropt.compiler.shapes import shape_rules

_BIG, _SMALL = 2**63 - 1, -(2**63)


def test_a_sample_agrees(tmp_path: Path) -> None:
    for case in cases(5 * len(CASES), seed=1):
        assert difference(case, tmp_path) is None, str(case)


def test_what_onnx_infers_alone_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = node("MaxPool", ["x0"], ["y"], kernel_shape=[1, 3], strides=[2, 2], ceil_mode=1)
    case = Case([made], [[1, 8, 4, 6]], opset=11)
    assert difference(case, tmp_path) is None
    for op_type in list(shape_rules.RULES):
        monkeypatch.setitem(shape_rules.RULES, op_type, lambda call: None)
    assert difference(case, tmp_path) == "tensor<1x8x3x3xf32>, expected [1, 8, 2, 3]"


def _sliced(shape: list[int], start: int, end: int, step: int, *more: onnx.NodeProto) -> Case:
    bounds = {"a": [start], "b": [end], "c": [0], "d": [step]}
    literals = {name: np.array(value) for name, value in bounds.items()}
    return Case([node("Slice", ["x0", *literals], ["y"]), *more], [shape], literals)


@pytest.mark.parametrize("end", [2**31 - 1, _BIG, _SMALL, _SMALL + 1])
@pytest.mark.parametrize("start", [-1, _BIG, 2**31 - 1, 3])
def test_a_reversed_tensor_has_all_elements(start: int, end: int, tmp_path: Path) -> None:
    case = _sliced([4], start, end, -1, node("Size", ["y"], ["size"]))
    assert difference(case, tmp_path) is None
    assert "dense<4> : tensor<i64>" in _prepared(case.model(), tmp_path)


def test_bounds_that_are_computed(tmp_path: Path) -> None:
    """The end is -2^63 or "to the end", which inference sees through, and gets wrong."""
    literals: dict[str, Any] = {name: np.array([n]) for name, n in (("a", -1), ("c", 0), ("d", -1))}
    literals |= {"m": np.array([_BIG - 1]), "one": np.array([1])}
    nodes = [node("Add", ["m", "one"], ["b"]), node("Slice", ["x0", *"abcd"], ["y"]),
             node("Size", ["y"], ["size"])]  # fmt: skip
    assert difference(Case(nodes, [[4]], literals), tmp_path) is None


@pytest.mark.parametrize("opset", [10, 11, 12, 22])
def test_a_last_window_in_the_padding_is_none(opset: int, tmp_path: Path) -> None:
    made = node("MaxPool", ["x0"], ["y"], kernel_shape=[1, 3], strides=[2, 2], ceil_mode=1)
    case = Case([made], [[1, 8, 4, 6]], opset=opset)
    assert difference(case, tmp_path) is None
    assert "tensor<1x8x2x3xf32>" in _prepared(case.model(), tmp_path)


def test_shapes_are_corrected_in_branches(tmp_path: Path) -> None:
    """The input of the pool is outside of the branch, and what follows it inside."""
    pool = node("MaxPool", ["r"], ["p"], kernel_shape=[1], strides=[2], ceil_mode=1, name="pool")
    value = helper.make_tensor_value_info
    branch = helper.make_graph(
        [pool, node("Shape", ["p"], ["s"])], "b", [], [value("s", TensorProto.INT64, [3])]
    )
    nodes = [node("Relu", ["x"], ["r"]),
             node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]  # fmt: skip
    inputs = [value("x", TensorProto.FLOAT, [1, 1, 4]), value("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.INT64, [3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    text = _prepared(model.SerializeToString(), tmp_path)
    assert text.count("dense<[1, 1, 2]>") == 2


def _prepared(model: bytes, folder: Path) -> str:
    path = folder / "prepared.onnx"
    path.write_bytes(model)
    module = load(path, {})
    run_phase(module, "prepare")
    return str(module)


def test_a_difference_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _sliced([4], 0, 2, 1, node("Shape", ["y"], ["shape"]))
    monkeypatch.setattr(shapes, "_run", _wrong)
    assert difference(case, tmp_path) == "folded to [2], expected [3]"


def _wrong(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    """Stand in for ONNX Runtime."""
    return [np.array([3])]


def test_one_element_has_no_dimensions(tmp_path: Path) -> None:
    nodes = [node("GatherND", ["x0", "i"], ["y"]), node("Size", ["y"], ["size"])]
    assert difference(Case(nodes, [[2, 3]], {"i": np.array([1, 2])}), tmp_path) is None
    nodes = [node("GatherND", ["x0", "i"], ["y"]), node("Neg", ["y"], ["z"])]
    prepared = _prepared(Case(nodes, [[2, 3]], {"i": np.array([1, 2])}).model(), tmp_path)
    assert "-> tensor<f32>" in prepared
