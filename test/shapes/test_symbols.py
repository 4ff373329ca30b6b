"""Sizes that symbolic dimensions tell: found, never invented."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.shapes.inference import infer_types, value_types
from tensoropt.compiler.shapes.symbols import dims_of, open_sizes, reshape_literal
from tensoropt.dialects import onnx as views

pytestmark = pytest.mark.usefixtures("mlir_context")

SIZES = {"batch": 3, "seq": 5, "past": 7, "heads": 2}
DIM = st.sampled_from([*SIZES, 2, 4, 6, 1])


def _value(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _sized(dims: list[int | str], sizes: dict[str, int]) -> list[int]:
    return [sizes[d] if isinstance(d, str) else d for d in dims]


@given(st.lists(DIM, max_size=5), st.data())
def test_the_open_size_of_a_reshape(dims: list[int | str], data: st.DataObject) -> None:
    """Whatever sizes the names have, the size found is the one that keeps the elements."""
    result: list[int | str] = data.draw(st.permutations(dims))
    at = data.draw(st.integers(0, len(result)))
    result = [*result[:at], "open", *result[at:]]
    dropped = data.draw(st.booleans()) and len(result) > 1
    if dropped:
        result.remove(next(d for d in result if d != "open"))
    types = {"x": _value("x", dims).type, "y": _value("y", result).type}
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"])], "g", [], [])
    for name, size in open_sizes(graph, types).items():
        assert name == "open"
        for factor in (1, 2):
            sizes = {key: factor * n for key, n in SIZES.items()} | {"open": size}
            assert math.prod(_sized(dims, sizes)) == math.prod(_sized(result, sizes))


@given(st.lists(DIM, max_size=5), st.data())
def test_a_reshape_by_its_literal_is_the_same(dims: list[int | str], data: st.DataObject) -> None:
    result: list[int | str] = data.draw(st.permutations(dims))
    literal = reshape_literal(dims, result)
    if literal is None:
        return
    for factor in (1, 3):
        sizes = {key: factor * n for key, n in SIZES.items()}
        x = np.zeros(_sized(dims, sizes))
        entries = [x.shape[i] if n == 0 else n for i, n in enumerate(literal)]
        assert list(x.reshape(entries).shape) == _sized(result, sizes)


@pytest.mark.parametrize(
    ("source", "result", "literal"),
    [
        (["batch", "seq", 64], ["batch", "seq", 4, 16], [0, 0, 4, 16]),
        (["batch", "seq", 64], ["seq", "batch", 64], None),
        (["batch", 4, "seq", 16], ["unk", 64], [-1, 64]),
        (["", 4], ["", 4], [-1, 4]),
        (["batch", 0], [0, "batch"], None),
    ],
)
def test_literals(source: list[int | str], result: list[int | str], literal: object) -> None:
    assert reshape_literal(source, result) == literal


def _computed_reshape() -> onnx.ModelProto:
    """[batch, seq, 64] to [batch, seq, -1, 16] by sizes that are read when it runs."""
    nodes = [
        helper.make_node("Shape", ["x"], ["leading"], end=2),
        helper.make_node("Concat", ["leading", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["h"], allowzero=1),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    rest = numpy_helper.from_array(np.array([-1, 16]), "rest")
    ends = [_value("x", ["batch", "seq", 64])], [_value("y", ["batch", "seq", "heads", 16])]
    graph = helper.make_graph(nodes, "g", *ends, [rest])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_inference_closes_what_the_names_tell() -> None:
    inferred = infer_types(_computed_reshape())
    assert dims_of(value_types(inferred.graph)["y"]) == ["batch", "seq", 4, 16]


@pytest.mark.parametrize("bounds", ["s, e, axes", "s, e, axes, steps", "e, s, axes, steps"])
def test_computed_bounds_of_a_slice_leave_other_dimensions_as_they_are(bounds: str) -> None:
    """A bias of positions, [heads, 1, positions], cut to the keys: MPT."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[16, n, 64] x, int64[1] s) => (y)
        <int64[1] e = {{64}}, int64[1] axes = {{-1}}, int64[1] steps = {{1}}> {{
            y = Slice (x, {bounds})
        }}"""
    )
    first, *others = dims_of(value_types(infer_types(model).graph)["y"]) or []
    assert first == 16
    assert not any(isinstance(size, int) for size in others)


def test_the_shape_of_such_a_reshape_becomes_a_literal(tmp_path: Path) -> None:
    onnx.save(_computed_reshape(), tmp_path / "m.onnx")
    module = driver.load(tmp_path / "m.onnx", {})
    driver.run_phase(module, "prepare")
    ops = [op.operation for op in views.function(module).regions[0].blocks[0]]
    [reshape] = [op for op in ops if op.name == "onnx.Reshape"]
    shape = views.constant_value(reshape.operands[1])
    assert shape is not None
    assert shape.tolist() == [0, 0, 4, 16]
    assert "allowzero" not in reshape.attributes


def test_outputs_keep_the_names_of_the_file(tmp_path: Path) -> None:
    """Inference makes up names for sizes that it cannot name."""
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)],
        "g",
        [_value("x", ["n", 4])],
        [_value("y", ["2*n", 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    main = views.function(driver.load(tmp_path / "m.onnx", {}))
    assert [d.value for d in main.attributes["res_attrs"][0]["topt.dims"]] == ["2*n", ""]
