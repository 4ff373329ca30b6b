"""What an imported module looks like: arguments, literals, attributes, regions, names, types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from importer.models import BOOL, F32, I64, imported, model, node, run, saved, text, untyped, value
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model
from tensoropt.dialects.elements import ELEMENTS, dense_to_array
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, function, node_name, walk

pytestmark = pytest.mark.usefixtures("mlir_context")

X = value("x", F32, [2, 3])
Y = untyped("y")


def tensor(array: Any, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def round_trip(proto: onnx.ModelProto, folder: Path, **inputs: Any) -> None:
    """Check that what is exported computes the same, also after printing and parsing."""
    path = saved(proto, folder)
    module = import_model(path)
    assert module.operation.verify()
    parsed = ir.Module.parse(text(module))
    files = export_model(parsed, folder / "out.onnx", ParameterSource(path))
    for expected, got in zip(run(path, inputs), run(files[0], inputs), strict=True):
        np.testing.assert_array_equal(got, expected)


def first(module: ir.Module, name: str) -> ir.Operation:
    return next(op for op in walk(function(module)) if op.name == name)


def test_header(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [X], [Y])
    module = imported(proto, tmp_path)
    held = module.operation.attributes
    assert str(held["topt.model"]) == '"model.onnx"'
    assert str(held["topt.opset"]) == "{ai.onnx = 20 : i64}"
    assert str(held["topt.ir_version"]) == "10 : i64"


def test_parameters_follow_the_inputs_in_order_of_use(tmp_path: Path) -> None:
    weights = [tensor(np.ones((3, 3), np.float32), name) for name in ("b", "unused", "a")]
    nodes = [node("MatMul", ["x", "a"], ["h"]), node("MatMul", ["h", "b"], ["y"])]
    module = imported(model(nodes, [X, value("z", I64, [1])], [Y], weights), tmp_path)
    held = [
        dict((e.name, str(e.attr)) for e in d) for d in function(module).attributes["arg_attrs"]
    ]
    assert [d["topt.name"] for d in held] == ['"x"', '"z"', '"a"', '"b"']
    assert ["topt.param" in d for d in held] == [False, False, True, True]


def test_an_initializer_that_is_an_input_too_is_a_parameter(tmp_path: Path) -> None:
    weight = tensor(np.ones((2, 3), np.float32), "w")
    proto = model([node("Add", ["x", "w"], ["y"])], [X, value("w", F32, [2, 3])], [Y], [weight])
    assert '%arg1: tensor<2x3xf32> {topt.name = "w", topt.param}' in str(imported(proto, tmp_path))
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("by", "literal"), [("scales", True), ("both", False), ("returned", False), ("branch", False)]
)
@pytest.mark.parametrize("training", [False, True])
def test_scales_of_a_resize_are_a_literal(
    by: str, literal: bool, training: bool, tmp_path: Path
) -> None:
    scales = tensor(np.array([1, 1, 2, 2], np.float32), "s")
    nodes, outputs = [node("Resize", ["x", "", "s"], ["y"], mode="nearest")], [untyped("y")]
    if by == "both":
        nodes.append(node("Add", ["y", "s"], ["z"]))
        outputs.append(untyped("z"))
    elif by == "returned":
        outputs.append(value("s", F32, [4]))
    elif by == "branch":
        inner = onnx.helper.make_graph([node("Neg", ["s"], ["b"])], "b", [], [untyped("b")])
        nodes.append(node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
        outputs.append(untyped("z"))
    inputs = [value("x", F32, [1, 1, 2, 2])] + ([value("c", BOOL, [])] if by == "branch" else [])
    module = imported(model(nodes, inputs, outputs, [scales]), tmp_path, training=training)
    assert ("topt.param" in str(module)) != literal


@pytest.mark.parametrize(
    ("array", "literal"),
    [
        (np.arange(1024), True),
        (np.arange(1025), False),
        (np.ones(2, np.float32), False),
        (np.ones((1, 1), np.float32), True),
        (np.array([True, False]), True),
        (np.array(2.5, np.float16), True),
        (np.ones(1, np.complex64), False),
        (np.array(["a", "b"], object), False),
        (np.array(["a"], object), True),
    ],
)
def test_what_is_a_literal(array: Any, literal: bool, tmp_path: Path) -> None:
    nodes = [node("Identity", ["c"], ["y"])]
    for proto in (
        model(nodes, [], [Y], [tensor(array, "c")]),
        model([node("Constant", [], ["c"], value=tensor(array, "t")), *nodes], [], [Y]),
    ):
        module = imported(proto, tmp_path)
        assert ("onnx.Constant" in str(module)) == literal
        assert ("topt.param" in str(module)) != literal
        if array.dtype.kind != "c":  # ONNX Runtime gives no complex outputs
            round_trip(proto, tmp_path)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"value_int": 3}, "dense<3> : tensor<i64>"),
        ({"value_ints": [3, 4]}, "dense<[3, 4]> : tensor<2xi64>"),
        ({"value_float": 0.5}, "dense<5.000000e-01> : tensor<f32>"),
        ({"value_floats": [0.5]}, "dense<5.000000e-01> : tensor<1xf32>"),
        ({"value_string": "a"}, 'dense<"a"> : tensor<!onnx.String>'),
        ({"value_strings": ["a"]}, 'dense<"a"> : tensor<1x!onnx.String>'),
    ],
)
def test_every_form_of_constant(held: dict[str, Any], expected: str, tmp_path: Path) -> None:
    proto = model([node("Constant", [], ["c"], **held), node("Identity", ["c"], ["y"])], [], [Y])
    module = imported(proto, tmp_path)
    assert str(first(module, "onnx.Constant").attributes["value"]) == expected
    round_trip(proto, tmp_path)


def test_float_lists_become_parameters(tmp_path: Path) -> None:
    nodes = [node("Constant", [], ["c"], value_floats=[0.5, 1.5]), node("Neg", ["c"], ["y"])]
    proto = model(nodes, [], [Y])
    assert 'tensor<2xf32> {topt.name = "c", topt.param}' in str(imported(proto, tmp_path))
    round_trip(proto, tmp_path)


def test_attributes_keep_their_names_and_kinds(tmp_path: Path) -> None:
    ticks = [
        node("LeakyRelu", ["x"], ["a"], alpha=0.1),
        node("Gemm", ["a", "w"], ["b"], transB=1),
        node("Transpose", ["b"], ["c"], perm=[1, 0]),
        node("DepthToSpace", ["d"], ["y"], blocksize=2, mode="CRD"),
        node("ConstantOfShape", ["s"], ["e"], value=tensor(np.float32([7]), "v")),
    ]
    proto = model(
        ticks,
        [X, value("d", F32, [1, 4, 2, 2])],
        [Y, untyped("c"), untyped("e")],
        [tensor(np.ones((4, 3), np.float32), "w"), tensor([2, 2], "s")],
    )
    printed = str(imported(proto, tmp_path))
    for wanted in (
        "{alpha = 1.000000e-01 : f32}",
        "{transB = 1 : i64}",
        "{perm = array<i64: 1, 0>}",
        '{blocksize = 2 : i64, mode = "CRD"}',
        "{value = dense<7.000000e+00> : tensor<1xf32>}",
    ):
        assert wanted in printed
    inputs = {"x": np.ones((2, 3), np.float32), "d": np.ones((1, 4, 2, 2), np.float32)}
    round_trip(proto, tmp_path, **inputs)


def test_lists_of_floats_strings_and_none(tmp_path: Path) -> None:
    nodes = [
        node(
            "LabelEncoder",
            ["k"],
            ["y"],
            domain="ai.onnx.ml",
            keys_strings=["a", "b"],
            values_floats=[0.5, 1.5],
        )
    ]
    given = value("k", TensorProto.STRING, [2])
    proto = model(nodes, [given], [Y], domains={"ai.onnx.ml": 3})
    module = imported(proto, tmp_path)
    op = first(module, "onnx.ai.onnx.ml.LabelEncoder")
    assert attribute(op, "keys_strings") == ["a", "b"]
    assert attribute(op, "values_floats") == [0.5, 1.5]
    assert attribute(op, "default_float", 9.0) == 9.0
    assert str(op.operands[0].type) == "tensor<2x!onnx.String>"
    round_trip(proto, tmp_path, k=np.array(["a", "b"], object))


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    made = node("ImageDecoder", ["x"], ["y"], name="n", pixel_format=b"\xff\x00")
    ends = [value("x", TensorProto.UINT8, [9])], [untyped("y")]
    module = ir.Module.parse(text(imported(model([made], *ends), tmp_path)))
    assert attribute(first(module, "onnx.ImageDecoder"), "pixel_format") == b"\xff\x00"
    path = export_model(module, tmp_path / "o.onnx", ParameterSource(tmp_path / "model.onnx"))[0]
    assert onnx.load(path).graph.node[0].attribute[0].s == b"\xff\x00"


def test_an_empty_list_survives(tmp_path: Path) -> None:
    made = node("ReduceMean", ["x"], ["y"])
    made.attribute.append(onnx.AttributeProto(name="axes", type=onnx.AttributeProto.INTS))
    module = ir.Module.parse(text(imported(model([made], [X], [Y], opset=13), tmp_path)))
    assert attribute(first(module, "onnx.ReduceMean"), "axes") == []


def test_type_attributes(tmp_path: Path) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [2]))
    nodes = [
        node("Optional", [], ["o"], type=kind.optional_type.elem_type),
        node("OptionalHasElement", ["o"], ["y"]),
    ]
    proto = model(nodes, [], [Y])
    module = imported(proto, tmp_path)
    op = first(module, "onnx.Optional")
    assert str(op.attributes["type"]) == "tensor<2xf32>"
    assert str(op.results[0].type) == "!onnx.Opt<tensor<2xf32>>"
    round_trip(proto, tmp_path)


def test_sequences(tmp_path: Path) -> None:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    proto = model(nodes, [X], [Y])
    module = imported(proto, tmp_path)
    op = first(module, "onnx.SequenceConstruct")
    assert str(op.results[0].type) == "!onnx.Seq<tensor<2x3xf32>>"
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_omitted_operands_and_results(tmp_path: Path) -> None:
    nodes = [
        node("Clip", ["x", "", "hi"], ["c"]),
        node("Dropout", ["c"], ["y", ""]),
        node("Unsqueeze", ["x", "k"], ["u"]),
        node("RNN", ["u", "w", "r"], ["", "h"], hidden_size=4),
    ]
    given = [tensor(np.float32(0.5), "hi"), tensor([0], "k")]
    given += [tensor(np.ones((1, 4, n), np.float32), name) for n, name in ((3, "w"), (4, "r"))]
    proto = model(nodes, [X], [Y, untyped("h")], given)
    module = imported(proto, tmp_path)
    clip, rnn = first(module, "onnx.Clip"), first(module, "onnx.RNN")
    assert [str(v.type) for v in clip.operands] == ["tensor<2x3xf32>", "none", "tensor<f32>"]
    assert [str(v.type) for v in rnn.results] == ["none", "tensor<1x2x4xf32>"]
    assert str(module).count("onnx.NoValue") == 1
    round_trip(proto, tmp_path, x=np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32))


def test_nodes_keep_their_names_and_get_one_where_they_have_none(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="same"),
        node("Relu", ["a"], ["b"], name="same"),
        node("Relu", ["b"], ["y"]),
    ]
    module = imported(model(nodes, [X], [Y]), tmp_path)
    names = [node_name(op) for op in walk(function(module)) if op.name == "onnx.Relu"]
    assert names == ["same", "same_1", "Relu_2"]


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"])]
    printed = str(imported(model(nodes, [X], [Y]), tmp_path))
    assert printed.index("onnx.Neg") < printed.index("onnx.Relu")


def branch(name: str, op: str, constant: float) -> onnx.GraphProto:
    weight = tensor(np.full((2, 3), constant, np.float32), "w")
    nodes = [node(op, ["x", "w"], ["t"]), node("Mul", ["t", "two"], ["out"])]
    return helper.make_graph(nodes, name, [], [untyped("out")], [weight])


def test_if(tmp_path: Path) -> None:
    made = node(
        "If", ["c"], ["y"], then_branch=branch("t", "Add", 1), else_branch=branch("e", "Sub", 2)
    )
    two = tensor(np.full((2, 3), 2, np.float32), "two")
    proto = model([made], [X, value("c", BOOL, [])], [Y], [two])
    module = imported(proto, tmp_path)
    op = first(module, "onnx.If")
    assert str(op.attributes["topt.regions"]) == '["else_branch", "then_branch"]'
    assert [r.blocks[0].operations[0].operation.name for r in op.regions] == [
        "onnx.Sub",
        "onnx.Add",
    ]
    assert 'topt.name = "w", topt.param' in str(module)
    assert 'topt.name = "w_1", topt.param' in str(module)
    source = ParameterSource(tmp_path / "model.onnx")
    assert {float(source.read(n)[0, 0]) for n in ("w", "w_1")} == {1.0, 2.0}
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    for flag in (True, False):
        round_trip(proto, tmp_path, x=x, c=np.array(flag))


def test_a_branch_that_returns_an_outer_value(tmp_path: Path) -> None:
    graphs = {
        "then_branch": helper.make_graph([node("Identity", ["x"], ["o"])], "t", [], [untyped("o")]),
        "else_branch": helper.make_graph(
            [node("Constant", [], ["o"], value=tensor(np.ones((2, 3), np.int64), "c"))],
            "e",
            [],
            [untyped("o")],
        ),
    }
    proto = model(
        [node("If", ["c"], ["y"], **graphs)], [value("x", I64, [2, 3]), value("c", BOOL, [])], [Y]
    )
    for flag in (True, False):
        round_trip(proto, tmp_path, x=np.zeros((2, 3), np.int64), c=np.array(flag))


def test_loop(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Add", ["sum", "x"], ["next"]),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
        ],
        "body",
        [value("i", I64, []), value("go", BOOL, []), value("sum", F32, [2, 3])],
        [untyped("go_on"), untyped("next"), untyped("total")],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "totals"], body=body)]
    proto = model(nodes, [X], [Y, untyped("totals")], [tensor(3, "n")])
    module = imported(proto, tmp_path)
    op = first(module, "onnx.Loop")
    kinds = [str(v.type) for v in op.regions[0].blocks[0].arguments]
    assert kinds == ["tensor<i64>", "tensor<i1>", "tensor<2x3xf32>"]
    assert str(op.results[1].type) == "tensor<?xf32>"
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_scan_in_a_branch(tmp_path: Path) -> None:
    step = helper.make_graph(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "two"], ["o"])],
        "step",
        [value("s", F32, [3]), value("e", F32, [3])],
        [untyped("s2"), untyped("o")],
    )
    then = helper.make_graph(
        [node("Scan", ["z", "x"], ["last", "r"], body=step, num_scan_inputs=1)],
        "t",
        [],
        [untyped("r")],
    )
    other = helper.make_graph([node("Neg", ["x"], ["r"])], "e", [], [untyped("r")])
    given = [tensor(np.zeros(3, np.float32), "z"), tensor(np.float32([2]), "two")]
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    proto = model(nodes, [X, value("c", BOOL, [])], [Y], given)
    for flag in (True, False):
        round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32), c=np.array(flag))


def test_functions_are_inlined(tmp_path: Path) -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["h"]),
        node("Constant", [], ["c"], value=tensor(np.float32([1, 2, 3]), "t")),
        node("Add", ["h", "c"], ["b"]),
    ]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    made = helper.make_function(
        "mine", "Leak", ["a"], ["b"], body, [helper.make_opsetid("", 20)], ["slope"]
    )
    calls = [
        node("Leak", ["x"], ["h"], domain="mine", slope=0.25),
        node("Leak", ["h"], ["y"], domain="mine", slope=0.5),
    ]
    proto = model(calls, [X], [Y], domains={"mine": 1}, functions=[made])
    printed = str(imported(proto, tmp_path))
    assert "mine" not in printed
    assert "{alpha = 2.500000e-01 : f32}" in printed
    assert "{alpha = 5.000000e-01 : f32}" in printed
    assert printed.count("topt.param") == 2
    round_trip(proto, tmp_path, x=-np.ones((2, 3), np.float32))


def fallback(domain: str, op_type: str, operands: int) -> onnx.FunctionProto:
    """A body of another meaning, which ONNX Runtime does not read if it has the operator."""
    names = [f"a{at}" for at in range(operands)]
    imports = [helper.make_opsetid("", 20)]
    return helper.make_function(
        domain, op_type, names, ["b"], [node("Neg", ["a0"], ["b"])], imports
    )


@pytest.mark.parametrize(("domain", "op_type"), [("", "Relu"), ("com.microsoft", "QuickGelu")])
def test_bodies_of_the_runtime_s_own_operators_are_ignored(
    domain: str, op_type: str, tmp_path: Path
) -> None:
    call = node(op_type, ["x"], ["y"], domain=domain)
    given = [fallback(domain, op_type, 1)]
    proto = model([call], [X], [Y], domains={"com.microsoft": 1}, functions=given)
    first(imported(proto, tmp_path), f"onnx.{domain}.{op_type}".replace("..", "."))
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_bodies_of_operators_without_a_kernel_are_inlined(tmp_path: Path) -> None:
    names = ["q", "k", "v", "bias", "offsets", "sequences"]
    call = node("PackedMultiHeadAttention", names, ["y"], domain="com.microsoft", num_heads=1)
    inputs = [*(value(name, F32, [4, 8]) for name in "qkv"), value("bias", F32, [24]),
              value("offsets", TensorProto.INT32, [1, 4]),
              value("sequences", TensorProto.INT32, [2])]  # fmt: skip
    given = [fallback("com.microsoft", "PackedMultiHeadAttention", 6)]
    proto = model([call], inputs, [Y], domains={"com.microsoft": 1}, functions=given)
    printed = str(imported(proto, tmp_path))
    assert "PackedMultiHeadAttention" not in printed
    assert "onnx.Neg" in printed


def test_bodies_are_inlined_in_training(tmp_path: Path) -> None:
    call = node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    given = [fallback("com.microsoft", "QuickGelu", 1)]
    proto = model([call], [X], [Y], domains={"com.microsoft": 1}, functions=given)
    assert "onnx.Neg" in str(imported(proto, tmp_path, training=True))


def test_quantised_products_without_zero_points_need_no_body(tmp_path: Path) -> None:
    """Their portable body unpacks zero points, which products with symmetric weights omit."""
    body = [
        node("Constant", [], ["m"], value=tensor(np.uint8(15), "m")),
        node("BitwiseAnd", ["zero", "m"], ["z"]),
        node("Cast", ["z"], ["f"], to=F32),
        node("Add", ["a", "f"], ["y"]),
    ]
    given = helper.make_function(
        "com.microsoft", "MatMulNBits", ["a", "b", "scales", "zero"], ["y"], body,
        [helper.make_opsetid("", 20)], ["block_size"],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    weights = [tensor(rng.integers(0, 256, (8, 2, 16)).astype(np.uint8), "w"),
               tensor(rng.random((8, 2)).astype(np.float32), "s")]  # fmt: skip
    call = node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=8, bits=4,
                block_size=32)  # fmt: skip
    proto = model([call], [value("x", F32, [3, 64])], [Y], weights, domains={"com.microsoft": 1},
                  functions=[given])  # fmt: skip
    round_trip(proto, tmp_path, x=rng.normal(size=(3, 64)).astype(np.float32))


def test_operators_of_the_runtime_get_their_types_from_it(tmp_path: Path) -> None:
    nodes = [
        node("FusedMatMul", ["x", "x"], ["h"], domain="com.microsoft", transB=1),
        node("Gelu", ["h"], ["g"], domain="com.microsoft"),
        node("Relu", ["g"], ["y"]),
    ]
    given = value("x", F32, ["n", 3])
    proto = model(nodes, [given], [Y], domains={"com.microsoft": 1})
    printed = str(imported(proto, tmp_path))
    assert '"onnx.com.microsoft.Gelu"(%0) : (tensor<?x?xf32>) -> tensor<?x?xf32>' in printed
    printed = str(imported(proto, tmp_path, dims={"n": 2}))
    assert '"onnx.Relu"(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>' in printed
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_outputs_of_operators_of_the_runtime_have_shapes(tmp_path: Path) -> None:
    normal = node("SimplifiedLayerNormalization", ["x", "s"], ["h"])
    last = node("QuickGelu", ["h"], ["y"], domain="com.microsoft")
    given = [value("x", F32, ["n", 3]), value("s", F32, [3])]
    proto = model([normal, last], given, [value("y", F32, None)], domains={"com.microsoft": 1})
    printed = str(imported(proto, tmp_path, dims={"n": 2}))
    assert '"onnx.com.microsoft.QuickGelu"(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>' in printed
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32), s=np.ones(3, np.float32))


@pytest.mark.parametrize(("axis", "sizes"), [(0, "1x1x1"), (1, "2x1x1"), (-1, "2x3x1")])
def test_statistics_of_simplified_layer_normalization(
    axis: int, sizes: str, tmp_path: Path
) -> None:
    normal = node("SimplifiedLayerNormalization", ["x", "s"], ["h", "i"], axis=axis)
    shape = [2, 3, 4]
    given = [value("x", F32, shape), value("s", F32, shape[axis:])]
    proto = model([normal, node("Neg", ["i"], ["y"])], given, [value("y", F32, None)])
    printed = str(imported(proto, tmp_path))
    assert f"(tensor<{sizes}xf32>) -> tensor<{sizes}xf32>" in printed
    round_trip(proto, tmp_path, x=np.ones(shape, np.float32), s=np.ones(shape[axis:], np.float32))


@pytest.mark.parametrize("told", [True, False])
def test_outputs_that_nodes_read_have_shapes(told: bool, tmp_path: Path) -> None:
    first = node("QuickGelu", ["x"], ["h"], domain="com.microsoft")
    end = value("h", F32, [2, 3]) if told else onnx.ValueInfoProto(name="h")
    proto = model([first, node("Neg", ["h"], ["y"])], [value("x", F32, [2, 3])],
                  [value("y", F32, None), end], domains={"com.microsoft": 1})  # fmt: skip
    printed = str(imported(proto, tmp_path))
    assert '"onnx.Neg"(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>' in printed


def test_symbolic_dimensions_keep_their_names(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", F32, ["batch", 3, None])], [Y])
    module = imported(proto, tmp_path)
    assert '(%arg0: tensor<?x3x?xf32> {topt.dims = ["batch", "", "x:2"]' in str(module)
    path = export_model(module, tmp_path / "o.onnx", ParameterSource(tmp_path / "model.onnx"))[0]
    graph = onnx.load(path).graph
    for info in (graph.input[0], graph.output[0]):
        dims = info.type.tensor_type.shape.dim
        assert [d.dim_param or d.dim_value for d in dims][:2] == ["batch", 3]


def test_question_marks_are_no_names(tmp_path: Path) -> None:
    """Two sizes of ? need not be equal, nor two of -1."""
    inner = value("h", F32, [-1, 3, "?", "?"])
    nodes = [node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])]
    proto = model(nodes, [value("x", F32, [-1, 3, "?", "None"])], [Y])
    proto.graph.value_info.append(inner)
    assert 'topt.dims = ["x:0", "", "x:2", "x:3"]' in str(imported(proto, tmp_path))


def test_stale_sizes_of_outputs_are_not_trusted(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [X], [value("y", F32, [7, 3])])
    assert "-> (tensor<2x3xf32>" in str(imported(proto, tmp_path))


def test_declared_types_stand_where_nothing_can_be_inferred(tmp_path: Path) -> None:
    nodes = [node("Reshape", ["x", "s"], ["h"]), node("Relu", ["h"], ["y"])]
    proto = model(nodes, [X, value("s", I64, ["rank"])], [Y])
    assert "tensor<*xf32>" in str(imported(proto, tmp_path))
    proto.graph.value_info.append(value("h", F32, [3, 2]))
    printed = str(imported(proto, tmp_path))
    assert "*" not in printed
    assert '"onnx.Relu"(%0) : (tensor<3x2xf32>) -> tensor<3x2xf32>' in printed


def test_an_output_that_is_an_input_or_a_weight(tmp_path: Path) -> None:
    weight = tensor(np.ones((2, 3), np.float32), "w")
    nodes = [node("Add", ["x", "w"], ["y"])]
    proto = model(nodes, [X], [Y, value("x", F32, [2, 3])], [weight])
    module = imported(proto, tmp_path)
    assert "return %0, %arg0" in str(module)
    proto = model(nodes, [X], [Y, value("w", F32, [2, 3])], [weight])
    assert "return %0, %arg1" in str(imported(proto, tmp_path))


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)
def test_every_element_type(element: Any, tmp_path: Path) -> None:
    """A parameter, a literal and an input of each type, through text and back into a file."""
    array = sample(element, 5)
    stored = [make_tensor(element, array, "w"), make_tensor(element, array[:1], "c")]
    shapes = {"x": [5], "w": [5], "c": [1]}
    ends = [value(name, element.number, shape) for name, shape in shapes.items()]
    proto = model([], ends[:1], ends, stored, opset=26, ir_version=13)
    module = ir.Module.parse(text(imported(proto, tmp_path)))
    assert f"tensor<5x{element.mlir}>" in str(module)
    files = export_model(module, tmp_path / "o.onnx", ParameterSource(tmp_path / "model.onnx"))
    found = {t.name: t for t in onnx.load(files[0]).graph.initializer}
    assert found["w"].data_type == element.number
    assert same(numpy_helper.to_array(found["w"]), array)
    assert same(numpy_helper.to_array(found["c"]), array[:1])
    if not element.is_complex:
        literal = next(op for op in walk(function(module)) if node_name(op) == "c")
        assert same(dense_to_array(literal.attributes["value"]), array[:1])


def sample(element: Any, count: int) -> Any:
    rng = np.random.default_rng(1)
    if element.name == "STRING":
        return np.array([f"s{i}" for i in range(count)], object)
    if element.is_complex:
        return (rng.normal(size=count) + 1j * rng.normal(size=count)).astype(element.dtype)
    if element.name == "BOOL":
        return rng.integers(0, 2, count).astype(bool)
    if element.is_integer:
        low = 0 if element.name.startswith("U") else -2
        return rng.integers(low, low + 4, count).astype(element.dtype)
    return np.asarray(rng.normal(size=count)).astype(element.dtype)


def make_tensor(element: Any, array: Any, name: str) -> onnx.TensorProto:
    if element.name == "STRING":
        return helper.make_tensor(name, element.number, array.shape, array.tolist())
    return numpy_helper.from_array(array, name)


def same(a: Any, b: Any) -> bool:
    if b.dtype == object:
        return [i if isinstance(i, bytes) else i.encode() for i in a.tolist()] == [
            i.encode() for i in b.tolist()
        ]
    return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())


def test_a_size_of_minus_one_is_not_known(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", F32, [-1, 3])], [Y])
    assert '"onnx.Relu"(%arg0) : (tensor<?x3xf32>) -> tensor<?x3xf32>' in str(
        imported(proto, tmp_path)
    )


def test_a_model_without_standard_operators(tmp_path: Path) -> None:
    scaler = node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    proto = model([scaler], [X], [Y], domains={"ai.onnx.ml": 3})
    del proto.opset_import[0]
    module = imported(proto, tmp_path)
    assert str(module.operation.attributes["topt.opset"]) == (
        "{ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}"
    )
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_an_operator_whose_own_inference_fails(tmp_path: Path) -> None:
    """ONNX's strict inference trips over the function that defines it; ONNX Runtime does not."""
    nodes = [node("MeanVarianceNormalization", ["x"], ["y"], axes=[0])]
    proto = model(nodes, [X], [Y], opset=13)
    assert "-> tensor<2x3xf32>" in str(imported(proto, tmp_path))
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_an_operator_whose_default_its_own_function_lacks(tmp_path: Path) -> None:
    nodes = [node("MeanVarianceNormalization", ["x"], ["y"])]
    proto = model(nodes, [value("x", F32, [2, 3, 1, 4])], [Y], opset=13)
    round_trip(proto, tmp_path, x=np.ones((2, 3, 1, 4), np.float32))


def test_values_that_inference_gets_wrong(tmp_path: Path) -> None:
    """The propagation of values takes the 2x1 times 1x3 of integers for vectors that do not fit."""
    nodes = [
        node("Unsqueeze", ["a", "one"], ["column"]),
        node("Mul", ["column", "b"], ["m"]),
        node("Add", ["m", "i"], ["y"]),
    ]
    stored = [tensor([1, 2], "a"), tensor([1], "one"), tensor([3, 4, 5], "b")]
    proto = model(nodes, [value("i", I64, [1])], [Y], stored)
    assert ": (tensor<2x3xi64>, tensor<1xi64>) -> tensor<2x3xi64>" in str(imported(proto, tmp_path))
    round_trip(proto, tmp_path, i=np.ones(1, np.int64))


def test_a_bound_of_range_with_a_dimension_becomes_a_scalar(tmp_path: Path) -> None:
    nodes = [node("Range", ["start", "limit", "step"], ["y"])]
    given = [value("start", I64, []), value("limit", I64, [1]), value("step", I64, [])]
    proto = model(nodes, given, [value("y", I64, [None])])
    assert '"onnx.Squeeze"(%arg1) : (tensor<1xi64>) -> tensor<i64>' in str(
        imported(proto, tmp_path)
    )
    round_trip(proto, tmp_path, start=np.array(0), limit=np.array([5]), step=np.array(1))


def _normalised(*outputs: str) -> onnx.NodeProto:
    name = "SkipLayerNormalization"
    return node(name, ["x", "x", "scale"], ["y", *outputs], domain="com.microsoft")


def test_statistics_that_nothing_reads_are_left_out(tmp_path: Path) -> None:
    """Exporters name all results of a normalised sum; with its statistics it is never split."""
    scale = tensor(np.ones(3, np.float32), "scale")
    nodes = [_normalised("mean", "deviation", "sum"), node("Relu", ["sum"], ["z"])]
    x, outputs = value("x", F32, [2, 4, 3]), [untyped("y"), untyped("z")]
    proto = model(nodes, [x], outputs, [scale], domains={"com.microsoft": 1})
    assert "-> (tensor<2x4x3xf32>, none, none, tensor<2x4x3xf32>)" in str(imported(proto, tmp_path))
    round_trip(proto, tmp_path, x=np.ones((2, 4, 3), np.float32))
    nodes[1] = node("Relu", ["mean"], ["z"])
    outputs[1] = value("z", F32, [2, 4, 1])
    proto = model(nodes, [x], outputs, [scale], domains={"com.microsoft": 1})
    assert "-> (tensor<2x4x3xf32>, tensor<2x4x1xf32>, none, " in str(imported(proto, tmp_path))


def test_operators_of_the_runtime_have_types_next_to_a_range_of_fixed_sizes(tmp_path: Path) -> None:
    """ONNX Runtime, which knows the type of the sum, refuses the bound as a constant."""
    nodes = [
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Range", ["zero", "length", "one"], ["r"]),
        _normalised("", "", "sum"),
        node("Relu", ["sum"], ["z"]),
    ]
    stored = [tensor(np.ones(3, np.float32), "scale"), tensor(0, "zero"), tensor(1, "one")]
    outputs = [untyped("y"), untyped("z"), value("r", I64, [None])]
    inputs = [value("x", F32, [2, "tokens", 3])]
    proto = model(nodes, inputs, outputs, stored, domains={"com.microsoft": 1})
    module = imported(proto, tmp_path, dims={"tokens": 4})
    assert "none, none, tensor<2x4x3xf32>)" in str(module)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_are_dense(indices: Any, tmp_path: Path) -> None:
    def sparse(name: str) -> onnx.SparseTensorProto:
        values = tensor(np.array([2.0, 3.0], np.float32), name)
        return helper.make_sparse_tensor(values, tensor(indices, f"{name} at"), [2, 3])

    nodes = [
        node("Constant", [], ["c"], sparse_value=sparse("c")),
        node("Add", ["x", "c"], ["t"]),
        node("Add", ["t", "s"], ["y"]),
    ]
    proto = model(nodes, [X], [Y])
    proto.graph.sparse_initializer.append(sparse("s"))
    round_trip(proto, tmp_path, x=np.ones((2, 3), np.float32))


def test_values_beside_the_model_are_known(tmp_path: Path) -> None:
    """The shapes that external literals say are those that they say in the model."""
    nodes = [node("Reshape", ["x", "to"], ["z"]), node("Add", ["z", "w"], ["y"])]
    held = [tensor(np.int64([3, 2]), "to"), tensor(np.float32([1, 2]), "w")]
    proto = model(nodes, [X], [Y], held)
    inside = text(import_model(saved(proto, tmp_path)))
    (tmp_path / "beside").mkdir()
    path = tmp_path / "beside" / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    kept = {
        t.name: len(t.external_data)
        for t in onnx.load(path, load_external_data=False).graph.initializer
    }
    assert min(kept.values()) > 0
    assert text(import_model(path)) == inside
    round_trip(onnx.load(path), tmp_path, x=np.float32([[1, 2, 3], [4, 5, 6]]))


@pytest.mark.parametrize("is_inside", [False, True])
def test_large_constants_beside_the_operators_of_the_runtime(
    is_inside: bool, tmp_path: Path
) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    made = [node("Constant", [], ["w"], value=tensor(weight, "")), node("Add", ["x", "w"], ["h"])]
    nodes = [*made, helper.make_node("Gelu", ["h"], ["y"], domain="com.microsoft")]
    if is_inside:
        made[-1].output[0] = "inner"
        body = helper.make_graph(made, "body", [], [untyped("inner")])
        held = {"then_branch": body, "else_branch": body}
        nodes = [node("If", ["c"], ["h"], **held), *nodes[2:]]
    inputs = [value("x", F32, [64, 64]), *([value("c", BOOL, [])] if is_inside else [])]
    proto = model(nodes, inputs, [Y])
    proto.opset_import.add(domain="com.microsoft", version=1)
    x = np.ones((64, 64), np.float32)
    round_trip(proto, tmp_path, x=x, **({"c": np.array(True)} if is_inside else {}))
