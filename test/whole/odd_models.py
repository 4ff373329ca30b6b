"""Small models that are valid and unusual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

node = helper.make_node
value = helper.make_tensor_value_info

Maker = Callable[[], onnx.ModelProto]
MODELS: dict[str, Maker] = {}


def odd(maker: Maker) -> Maker:
    """Register a model under the name of the function that makes it."""
    MODELS[maker.__name__] = maker
    return maker


def stored(array: npt.ArrayLike, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def weight(name: str, *shape: int, dtype: Any = np.float32) -> onnx.TensorProto:
    random = np.random.default_rng(len(name) + sum(shape))
    return stored((random.standard_normal(shape) * 0.3).astype(dtype), name)


def x(*shape: int | str | None, dtype: int = F32) -> onnx.ValueInfoProto:
    return value("x", dtype, shape or (8, 16))


def y(*shape: int | str | None, dtype: int = F32) -> onnx.ValueInfoProto:
    return value("y", dtype, shape or (8, 16))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *weights: onnx.TensorProto,
    opset: int = 20,
    ir_version: int = 10,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=ir_version, functions=functions
    )


@odd
def one_node() -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], [x()], [y()])


@odd
def no_node() -> onnx.ModelProto:
    return model([], [x()], [x()])


@odd
def an_input_returned() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Concat", ["x", "x"], ["z"], axis=0)]
    outputs = [y(8, 4), x(), onnx.ValueInfoProto(name="z")]
    return model(nodes, [x()], outputs, weight("w", 16, 4))


@odd
def a_parameter_returned() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    outputs = [y(8, 8), value("w", F32, [16, 8]), value("c", I64, [4])]
    return model(nodes, [x()], outputs, weight("w", 16, 8), stored(np.arange(4), "c"))


@odd
def a_value_returned_twice() -> onnx.ModelProto:
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"])]
    return model(nodes, [x()], [y(), value("z", F32, [8, 16])])


@odd
def only_a_constant() -> onnx.ModelProto:
    held = stored(np.arange(4, dtype=np.float32), "")
    return model([node("Constant", [], ["y"], value=held)], [], [y(4)])


@odd
def no_inputs() -> onnx.ModelProto:
    weights = weight("w", 8, 16), weight("u", 16, 8)
    return model([node("MatMul", ["w", "u"], ["y"])], [], [y(8, 8)], *weights)


@odd
def scalars() -> onnx.ModelProto:
    nodes = [node("Mul", ["x", "s"], ["h"]), node("ReduceSum", ["h"], ["y"], keepdims=0)]
    return model(nodes, [x(), value("s", F32, [])], [value("y", F32, [])])


@odd
def nothing_in_a_dimension() -> onnx.ModelProto:
    nodes = [
        node("Concat", ["x", "empty"], ["h"], axis=0),
        node("MatMul", ["h", "w"], ["y"]),
        node("MatMul", ["empty", "w"], ["z"]),
    ]
    inputs = [x(), value("empty", F32, [0, 16])]
    return model(nodes, inputs, [y(8, 8), value("z", F32, [0, 8])], weight("w", 16, 8))


def _perceptron(dtype: int, kind: Any) -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "u"], ["y"]),
    ]
    weights = weight("w", 16, 32, dtype=kind), weight("u", 32, 4, dtype=kind)
    return model(nodes, [x(8, 16, dtype=dtype)], [y(8, 4, dtype=dtype)], *weights)


@odd
def half_precision() -> onnx.ModelProto:
    return _perceptron(TensorProto.FLOAT16, np.float16)


@odd
def double_precision() -> onnx.ModelProto:
    return _perceptron(TensorProto.DOUBLE, np.float64)


@odd
def integers() -> onnx.ModelProto:
    held = stored(np.arange(64, dtype=np.int8).reshape(16, 4), "w")
    inputs, outputs = [x(8, 16, dtype=TensorProto.INT8)], [y(8, 4, dtype=TensorProto.INT32)]
    return model([node("MatMulInteger", ["x", "w"], ["y"])], inputs, outputs, held)


@odd
def a_type_that_no_collective_moves() -> onnx.ModelProto:
    nodes = [
        node("Transpose", ["x"], ["h"]),
        node("Add", ["h", "w"], ["s"]),
        node("Split", ["s"], ["y", "z"], axis=0, num_outputs=2),
    ]
    kind = TensorProto.UINT32
    outputs = [y(8, 8, dtype=kind), value("z", kind, [8, 8])]
    held = stored(np.arange(128, dtype=np.uint32).reshape(16, 8), "w")
    return model(nodes, [x(8, 16, dtype=kind)], outputs, held)


@odd
def weights_of_four_bits() -> onnx.ModelProto:
    """The larger is a parameter, cut in its file, and the smaller a literal."""
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        node("DequantizeLinear", ["p", "s"], ["v"], axis=1),
        node("MatMul", ["x", "w"], ["h"]),
        node("Add", ["h", "v"], ["y"]),
    ]
    held = [
        helper.make_tensor(
            name, TensorProto.INT4, [rows, 64], [i % 16 - 8 for i in range(64)] * rows
        )
        for name, rows in (("q", 32), ("p", 1))
    ]
    scales = stored(np.linspace(0.1, 0.2, 64, dtype=np.float32), "s")
    return model(nodes, [x(8, 32)], [y(8, 64)], *held, scales, opset=21)


@odd
def quantised() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["q", "c"], ["w"], axis=1),
        node("Mul", ["xd", "w"], ["y"]),
    ]
    held = stored(np.arange(-64, 64, dtype=np.int8).reshape(8, 16), "q")
    scales = stored(np.linspace(0.1, 0.2, 16, dtype=np.float32), "c")
    point = stored(np.float32(0.05), "s"), stored(np.int8(0), "z")
    return model(nodes, [x()], [y()], held, scales, *point)


@odd
def a_condition() -> onnx.ModelProto:
    out = [value("t", F32, [8, 16])]
    then = helper.make_graph([node("MatMul", ["h", "wt"], ["t"])], "t", [], out)
    other = helper.make_graph([node("Neg", ["h"], ["t"])], "e", [], out)
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("If", ["c"], ["r"], then_branch=then, else_branch=other),
        node("MatMul", ["r", "u"], ["y"]),
    ]
    weights = weight("w", 16, 16), weight("wt", 16, 16), weight("u", 16, 4)
    return model(nodes, [x(), value("c", BOOL, [])], [y(8, 4)], *weights)


@odd
def a_loop() -> onnx.ModelProto:
    state = value("state", F32, [8, 16])
    body = helper.make_graph(
        [node("MatMul", ["state", "v"], ["next"]), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", I64, []), value("go", BOOL, []), state],
        [value("on", BOOL, []), value("next", F32, [8, 16])],
    )
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Loop", ["n", "", "h"], ["l"], body=body),
        node("MatMul", ["l", "u"], ["y"]),
    ]
    weights = weight("w", 16, 16), weight("v", 16, 16), weight("u", 16, 4)
    return model(nodes, [x()], [y(8, 4)], *weights, stored(3, "n"))


@odd
def a_scan() -> onnx.ModelProto:
    """The running sum of the rows, between two products."""
    row = [16]
    body = helper.make_graph(
        [node("Add", ["sum", "row"], ["next"]), node("Identity", ["next"], ["out"])],
        "body",
        [value("sum", F32, row), value("row", F32, row)],
        [value("next", F32, row), value("out", F32, row)],
    )
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Scan", ["start", "h"], ["last", "s"], body=body, num_scan_inputs=1),
        node("MatMul", ["s", "u"], ["y"]),
    ]
    weights = weight("w", 16, 16), weight("u", 16, 4), weight("start", 16)
    return model(nodes, [x()], [y(8, 4)], *weights)


@odd
def an_optional() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Optional", ["h"], ["o"]),
        node("OptionalGetElement", ["o"], ["g"]),
        node("MatMul", ["g", "u"], ["y"]),
    ]
    return model(nodes, [x()], [y(8, 4)], weight("w", 16, 16), weight("u", 16, 4))


@odd
def texts() -> onnx.ModelProto:
    """Numbers, as text with an exponent behind, as numbers again."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Cast", ["h"], ["t"], to=I64),
        node("Cast", ["t"], ["s"], to=TensorProto.STRING),
        node("StringConcat", ["s", "e"], ["c"]),
        node("Cast", ["c"], ["n"], to=F32),
        node("MatMul", ["n", "u"], ["y"]),
    ]
    exponent = helper.make_tensor("e", TensorProto.STRING, [1], [b"e-1"])
    weights = weight("w", 16, 16), weight("u", 16, 4), exponent
    return model(nodes, [x()], [y(8, 4)], *weights)


@odd
def a_function() -> onnx.ModelProto:
    inner = [node("MatMul", ["a", "b"], ["t"]), node("Relu", ["t"], ["o"])]
    block = helper.make_function(
        "mine", "Block", ["a", "b"], ["o"], inner, [helper.make_opsetid("", 20)]
    )
    nodes = [
        node("Block", ["x", "w"], ["h"], domain="mine"),
        node("Block", ["h", "u"], ["y"], domain="mine"),
    ]
    weights = weight("w", 16, 16), weight("u", 16, 4)
    return model(nodes, [x()], [y(8, 4)], *weights, domains=["mine"], functions=[block])


@odd
def symbolic_dimensions() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Concat", ["h", "z"], ["c"], axis=0),
        node("Softmax", ["c"], ["y"], axis=1),
    ]
    inputs = [x("batch size", 16), value("z", F32, [None, 4])]
    return model(nodes, inputs, [y(None, 4)], weight("w", 16, 4))


@odd
def strange_names() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["in put/x", "w:0"], ['\u00e9/\u00fc "q"'], name="no de/\U0001f600\\"),
        node("Relu", ['\u00e9/\u00fc "q"'], ["a\nb"], name="../../etc"),
        node("Relu", ["a\nb"], ["arg0"], name='loc("x")'),
        node("Relu", ["arg0"], ["tensoropt.token"], name="%0"),
    ]
    outputs = [value("tensoropt.token", F32, [8, 4])]
    return model(nodes, [value("in put/x", F32, [8, 16])], outputs, weight("w:0", 16, 4))


@odd
def initializers_among_the_inputs() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    inputs = [x(), value("w", F32, [16, 4]), value("unused", F32, [7, 3])]
    return model(nodes, inputs, [y(8, 4)], weight("w", 16, 4))


@odd
def the_oldest_opset() -> onnx.ModelProto:
    """Opset 7, in which a bias is kept on one rank without the operator Where."""
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        node("BatchNormalization", ["h", "one", "b", "b", "one"], ["n"]),
        node("Reshape", ["n", "shape"], ["y"]),
    ]
    ones, shape = stored(np.ones(4, np.float32), "one"), stored(np.array([4, 8]), "shape")
    weights = weight("w", 4, 16), weight("b", 4), ones, shape
    return model(nodes, [x()], [y(4, 8)], *weights, opset=7, ir_version=3)


@odd
def the_newest_opset() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Gelu", ["h"], ["y"])]
    return model(nodes, [x()], [y(8, 4)], weight("w", 16, 4), opset=26, ir_version=13)


@odd
def uneven_sizes() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Softmax", ["h"], ["y"])]
    return model(nodes, [x(7, 13)], [y(7, 5)], weight("w", 13, 5))


@odd
def sizes_known_when_run() -> onnx.ModelProto:
    return model([node("NonZero", ["x"], ["y"])], [x()], [y(2, None, dtype=I64)])


@odd
def a_sequence() -> onnx.ModelProto:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("ConcatFromSequence", ["s"], ["c"], axis=0),
        node("MatMul", ["c", "w"], ["y"]),
    ]
    return model(nodes, [x()], [y(16, 4)], weight("w", 16, 4))


@odd
def strings() -> onnx.ModelProto:
    """Strings given, made, looked up, compared and returned; no rank sends any."""
    words = [f"word {number}" for number in range(8)]
    known = {"classes_strings": [*"abcdefgh"], "domain": "ai.onnx.ml"}
    nodes = [
        node("LabelEncoder", ["x"], ["i"], default_int64=-1, **known),
        node("LabelEncoder", ["i"], ["back"], default_string="none", **known),
        node("Gather", ["words", "i"], ["found"]),
        node("Equal", ["x", "c"], ["same"]),
        node("Cast", ["i"], ["f"], to=F32),
        node("MatMul", ["f", "w"], ["y"]),
        node("Identity", ["x"], ["copy"]),
    ]
    text, tables = TensorProto.STRING, (stored(words, "words"), stored("c", "c"))
    outputs = [value(name, text, [8, 16]) for name in ("back", "found", "copy")]
    outputs += [value("same", BOOL, [8, 16]), y(8, 4)]
    inputs, weights = [x(dtype=text)], (*tables, weight("w", 16, 4))
    return model(nodes, inputs, outputs, *weights, domains=["ai.onnx.ml"])


@odd
def a_forest() -> onnx.ModelProto:
    """Features that are scaled, two trees with labels that are words, and one column of scores."""
    leaves, nodes_of = [0, 0, 1, 1], [0, 1, 2] * 2
    trees = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1],
        "nodes_nodeids": nodes_of,
        "nodes_featureids": [1, 0, 0, 3, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0] * 2,
        "nodes_falsenodeids": [2, 0, 0] * 2,
        "class_treeids": leaves,
        "class_nodeids": [1, 2, 1, 2],
        "class_ids": [0, 1, 1, 0],
        "class_weights": [0.5, 1.5, -0.25, 2.0],
        "classlabels_strings": ["yes", "no"],
    }
    classical = {"domain": "ai.onnx.ml"}
    nodes = [
        node("Scaler", ["x"], ["s"], offset=[0.25], scale=[2.0], **classical),
        node("TreeEnsembleClassifier", ["s"], ["label", "p"], **trees, **classical),
        node("ArrayFeatureExtractor", ["p", "one"], ["y"], **classical),
    ]
    outputs = [value("label", TensorProto.STRING, [8]), value("p", F32, [8, 2]), y(8, 1)]
    return model(nodes, [x()], outputs, stored(np.array([1]), "one"), domains=["ai.onnx.ml"])
