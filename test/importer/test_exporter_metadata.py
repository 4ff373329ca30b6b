"""What exporters say of tensors, on the ways in which PyTorch writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from importer.models import F32, imported, model, node, text, untyped, value
from onnx import helper, numpy_helper

from tensoropt.compiler.importer.exporter_metadata import read_metadata
from tensoropt.compiler.importer.model_file import load_model

pytestmark = pytest.mark.usefixtures("mlir_context")

SIGNATURE = """
# inputs
p_w: PARAMETER target='w'
p_scale: PARAMETER target='scale'
p_b1_weight: PARAMETER target='b1.weight'
p_head: PARAMETER target='head'
b_mask: BUFFER target='mask' persistent=True
c_lifted_tensor_0: CONSTANT_TENSOR target='lifted_tensor_0'
x: USER_INPUT

# outputs
add: USER_OUTPUT
"""


def stored(*shapes: tuple[str, list[int]]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes]


def exported() -> onnx.ModelProto:
    """As torch.export has it: a parameter folded into ``val_1``, one left out, a table, a mask."""
    weights = stored(
        ("w", [4, 4]), ("scale", []), ("mask", [4]), ("val_1", [4]), ("val_2", [4]), ("val_3", [4])
    )
    names = [w.name for w in weights]
    nodes = [
        node("Mul", ["x" if i == 0 else f"h{i}", name], [f"h{i + 1}"])
        for i, name in enumerate(names)
    ]
    proto = model(nodes, [value("x", F32, [4, 4])], [untyped(f"h{len(names)}")], weights, opset=20)
    key = "pkg.torch.export.ExportedProgram.graph_signature"
    proto.graph.metadata_props.add(key=key, value=SIGNATURE)
    for name, origins in (("val_1", "['head']"), ("val_2", "['mask', 'val_0']")):
        info = proto.graph.value_info.add()
        info.CopyFrom(value(name, F32, [4]))
        info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=origins)
    return proto


def test_a_signature_says_what_is_trained() -> None:
    said = read_metadata(exported())
    fixed = {"mask": False, "val_2": False, "val_3": False}
    assert said.trained == {"w": True, "scale": True, "val_1": True, **fixed}
    assert said.lost == ("b1.weight",)


def test_what_is_no_parameter_is_marked(tmp_path: Path) -> None:
    proto = exported()
    module = text(imported(proto, tmp_path, training=True))
    for name in ("w", "scale", "val_1"):
        assert f'topt.name = "{name}", topt.param}}' in module
    for name in ("mask", "val_2", "val_3"):
        assert f'topt.fixed, topt.name = "{name}", topt.param}}' in module
    assert 'topt.lost = ["b1.weight"]' in module
    assert "topt.fixed" not in text(imported(proto, tmp_path))


@pytest.mark.parametrize(
    ("producer", "name", "trained"),
    [
        ("pytorch", "head.scale", True),
        ("pytorch", "scale", True),
        ("pytorch", "onnx::Mul_12", None),
        ("pytorch", "/gelu/Constant_output_0", None),
        ("pytorch", "val_12", None),
        ("other", "scale", None),
    ],
)
def test_a_scalar_is_trained_where_it_is_an_attribute(
    producer: str, name: str, trained: bool | None
) -> None:
    proto = model([node("Mul", ["x", name], ["y"])], [], [untyped("y")], stored((name, [])))
    proto.producer_name = producer
    assert read_metadata(proto).trained.get(name) is trained


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("wpe", True),
        ("layers.0.weight", True),
        ("causal_mask", None),
        ("rotary.cos_cached", None),
        ("bn.running_mean", None),
        ("onnx::MatMul_7", None),
        ("val_3", None),
    ],
)
def test_a_weight_named_like_an_attribute_is_trained(name: str, trained: bool | None) -> None:
    proto = model([node("Add", ["x", name], ["y"])], [], [untyped("y")], stored((name, [4, 4])))
    proto.producer_name = "pytorch"
    assert read_metadata(proto).trained.get(name) is trained


def test_other_names_of_a_weight_are_tied_to_it() -> None:
    proto = exported()
    info = proto.graph.value_info.add()
    info.CopyFrom(value("w", F32, [4, 4]))
    info.metadata_props.add(key="pkg.torch.onnx.original_node_name", value="p_w")
    proto.graph.node[0].metadata_props.add(
        key="pkg.torch.onnx.fx_node", value="%y = call_function[target=mul](args = (%x, %p_w))"
    )
    scopes = proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes")
    for module, tied in (("b1", {}), ("head", {})):
        scopes.value = f"['', '{module}', 'mul']"
        assert read_metadata(proto).tied == tied
    signature = proto.graph.metadata_props[0]
    signature.value = signature.value.replace("target='b1.weight'", "target='b1.w'")
    scopes.value = "['', 'b1', 'mul']"
    said = read_metadata(proto)
    assert said.tied == {"w": ["b1.w"]}
    assert "b1.w" not in (said.lost or ())
    scopes.value = "damaged"
    assert read_metadata(proto).lost == ("b1.w",)


def with_table(weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    table = numpy_helper.from_array(np.ones((4, 4), np.float32))
    nodes = [node("Constant", [], ["c"], value=table), node("MatMul", ["x", "c"], ["y"])]
    return model(nodes, [value("x", F32, [4, 4])], [untyped("y")], weights)


def test_tensors_of_constant_nodes_are_no_parameters() -> None:
    assert read_metadata(with_table(stored(("w", [4])))).trained == {"c": False}


def test_without_initializers_tensors_of_constant_nodes_are_trained(tmp_path: Path) -> None:
    proto = with_table([])
    assert read_metadata(proto).trained == {}
    onnx.save(proto, tmp_path / "model.onnx")
    loaded = load_model(tmp_path / "model.onnx", training=True)
    assert [own.fixed for own in loaded.parameters.values()] == [False]


def test_scalars_of_constant_nodes_in_bodies_are_literals(tmp_path: Path) -> None:
    table = numpy_helper.from_array(np.ones(1, np.float32))
    body = helper.make_graph([node("Constant", [], ["c"], value=table)], "b", [], [untyped("c")])
    nodes = [node("If", ["condition"], ["y"], then_branch=body, else_branch=body)]
    proto = model(nodes, [value("condition", onnx.TensorProto.BOOL, [])], [untyped("y")])
    onnx.save(proto, tmp_path / "model.onnx")
    assert not load_model(tmp_path / "model.onnx", training=True).parameters


def test_merged_initializers_are_listed() -> None:
    nodes = [node("Identity", ["w"], ["v"]), node("Identity", ["x"], ["y"])]
    proto = model(nodes, [value("x", F32, [4])], [untyped("y")], stored(("w", [4])))
    assert read_metadata(proto).merged == ()
    proto.producer_name = "pytorch"
    assert read_metadata(proto).merged == ("w",)


def test_damaged_origins_say_nothing() -> None:
    proto = exported()
    proto.graph.value_info[0].metadata_props[0].value = "[head"
    assert read_metadata(proto).trained["val_1"] is False
