"""Models as training reads them: converted, of static shapes, weights untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from importer.models import BOOL, F32, LIGHT, imported, model, node, saved, text, untyped, value
from onnx import numpy_helper

from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.onnx import function, opsets, split_name

pytestmark = pytest.mark.usefixtures("mlir_context")

W = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def squeezed(opset: int) -> onnx.ModelProto:
    """A product between operators whose axes became operands in opset 13."""
    nodes = [
        node("Unsqueeze", ["x"], ["a"], axes=[0]),
        node("MatMul", ["a", "w"], ["b"]),
        node("Squeeze", ["b"], ["y"], axes=[0]),
    ]
    stored = [numpy_helper.from_array(W, "w")]
    return model(nodes, [value("x", F32, [8, 64])], [untyped("y")], stored, opset=opset)


def names(module: object) -> list[str]:
    return [split_name(op.operation.name)[1] for op in function(module).regions[0].blocks[0]]


def test_an_old_model_is_converted(tmp_path: Path) -> None:
    module = imported(squeezed(11), tmp_path, training=True)
    assert opsets(module) == {"": 20}
    assert [n for n in names(module) if n != "Constant"] == [
        "Unsqueeze",
        "MatMul",
        "Squeeze",
        "return",
    ]
    assert 'topt.name = "w", topt.param' in text(module)
    source = ParameterSource(tmp_path / "model.onnx", training=True)
    np.testing.assert_array_equal(source.read("w"), W)


def test_a_new_model_stays(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", F32, [8])], [untyped("y")], opset=22)
    assert opsets(imported(proto, tmp_path, training=True)) == {"": 22}


def test_inference_converts_nothing(tmp_path: Path) -> None:
    assert opsets(imported(squeezed(11), tmp_path)) == {"": 11}


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_real_models_are_converted(path: Path) -> None:
    assert opsets(import_model(path, training=True))[""] == 20


def test_no_weight_is_read(tmp_path: Path) -> None:
    """The external file is larger than any memory here, and has no blocks on the disk."""
    huge = onnx.TensorProto(name="w", data_type=F32, dims=[1 << 20, 1 << 18])
    huge.data_location = onnx.TensorProto.EXTERNAL
    huge.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 40)
    nodes = [node("Unsqueeze", ["x"], ["a"], axes=[0]), node("MatMul", ["a", "w"], ["y"])]
    proto = model(nodes, [value("x", F32, [8, 1 << 20])], [untyped("y")], [huge], opset=11)
    module = imported(proto, tmp_path, training=True)
    assert "tensor<1048576x262144xf32>" in text(module)
    source = ParameterSource(tmp_path / "model.onnx", training=True)
    part = source.read("w", [slice(5, 6), slice(0, 3)])
    np.testing.assert_array_equal(part, np.zeros((1, 3)))


def refused(proto: onnx.ModelProto, folder: Path, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        imported(proto, folder, training=True, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    names = ["x", "s", "b", "m", "v"]
    nodes = [node("BatchNormalization", names, ["y"], spatial=0)]
    inputs = [value(name, F32, [2, 3] if name == "x" else [3]) for name in names]
    message = refused(model(nodes, inputs, [untyped("y")], opset=7), tmp_path)
    assert "training needs opset 20 or later, and onnx.version_converter does not" in message
    assert message.endswith("Attribute spatial must have value 1")
    assert "this model of opset 7: Assertion `" in message


def test_symbolic_dimensions_are_named(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "z"], ["y"])]
    inputs = [value("x", F32, ["batch", "past + new"]), value("z", F32, ["batch", 1])]
    proto = model(nodes, inputs, [untyped("y")])
    assert refused(proto, tmp_path).endswith(
        "training needs static shapes, expected --dim batch=SIZE --dim 'past + new=SIZE'"
    )
    assert refused(proto, tmp_path, dims={"past": 2, "new": 3}).endswith(
        "expected --dim batch=SIZE"
    )
    imported(proto, tmp_path, training=True, dims={"batch": 4, "past": 2, "new": 3})


def test_a_dimension_without_a_name(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", F32, [8, None])], [untyped("y")])
    assert refused(proto, tmp_path).endswith("static shapes, expected --dim x:1=SIZE")
    imported(proto, tmp_path, training=True, dims={"x:1": 4})


def test_a_stored_input_may_be_symbolic(tmp_path: Path) -> None:
    inputs = [value("x", F32, [64, 64]), value("w", F32, ["n", "n"])]
    nodes, stored = [node("MatMul", ["x", "w"], ["y"])], [numpy_helper.from_array(W, "w")]
    imported(model(nodes, inputs, [untyped("y")], stored), tmp_path, training=True)


def test_a_bias_of_one_element_is_a_parameter(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "two"], ["a"]), node("Add", ["a", "b"], ["y"])]
    stored = [
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.array([3], np.float32), "b"),
    ]
    proto = model(nodes, [value("x", F32, [8])], [untyped("y")], stored)
    assert ParameterSource(saved(proto, tmp_path), training=True).names == ["b"]
    assert 'topt.name = "b", topt.param' in text(imported(proto, tmp_path, training=True))
    assert "topt.param" not in text(imported(proto, tmp_path))


def test_branches_are_converted(tmp_path: Path) -> None:
    then, other = (
        onnx.helper.make_graph(
            [node("Squeeze", ["a"], [f"{name}_y"], axes=[0])],
            name,
            [],
            [value(f"{name}_y", F32, [8])],
        )
        for name in ("then", "else")
    )
    nodes = [
        node("Unsqueeze", ["x"], ["a"], axes=[0]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [value("x", F32, [8]), value("c", BOOL, [])]
    module = imported(model(nodes, inputs, [untyped("y")], opset=11), tmp_path, training=True)
    assert opsets(module) == {"": 20}


def test_initializers_of_an_old_format_are_found(tmp_path: Path) -> None:
    """Written without being inputs, as no file of IR version 3 should be; many are."""
    proto = squeezed(9)
    proto.ir_version = 3
    assert opsets(imported(proto, tmp_path, training=True)) == {"": 20}
