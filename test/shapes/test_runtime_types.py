"""Types of ONNX Runtime's own operators, in every floating-point type that their schemas allow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from tensoropt.compiler.shapes.inference import infer_types, value_types

NAMES = {
    "tensor(float)": TensorProto.FLOAT,
    "tensor(float16)": TensorProto.FLOAT16,
    "tensor(bfloat16)": TensorProto.BFLOAT16,
    "tensor(double)": TensorProto.DOUBLE,
}
X, WIDE = (2, 3, 32), (32,)
CACHE = (2, 2, 6, 8)
INT32 = TensorProto.INT32
INT64 = TensorProto.INT64
UINT8 = TensorProto.UINT8

# Operator, operands (sizes, or sizes with an element type that is none of those drawn), attributes.
Operand = Sequence[Any] | None
CASES: list[tuple[str, list[Operand], dict[str, Any]]] = [
    ("BiasGelu", [X, WIDE], {}),
    ("FastGelu", [X, WIDE], {}),
    ("Gelu", [X], {}),
    ("QuickGelu", [X], {}),
    ("FusedMatMul", [X, (32, 8)], {"alpha": 0.5}),
    ("SkipLayerNormalization", [X, X, WIDE, WIDE], {}),
    ("SkipSimplifiedLayerNormalization", [X, X, WIDE], {}),
    ("RotaryEmbedding", [X, ((2, 3), INT64), (16, 4), (16, 4)], {"num_heads": 4}),
    ("Attention", [X, (32, 96), (96,)], {"num_heads": 4}),
    ("MultiHeadAttention", [X, X, X], {"num_heads": 4}),
    (
        "GroupQueryAttention",
        [(2, 1, 32), (2, 1, 16), (2, 1, 16), CACHE, CACHE, ((2, 1), INT32), ((), INT32)],
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    (
        "MatMulNBits",
        [X, ((16, 1, 16), UINT8), (16,)],
        {"K": 32, "N": 16, "bits": 4, "block_size": 32},
    ),
    ("MoE", [(6, 32), (6, 4), (4, 32, 64), None, (4, 64, 32)], {"k": 1}),
    ("SimplifiedLayerNormalization", [X, WIDE], {"axis": -1}),
    ("TransposeMatMul", [X, (32, 8)], {}),
    ("FusedGemm", [(3, 32), (32, 8), (8,)], {"activation": "Relu"}),
    ("FusedConv", [(1, 4, 8, 8), (6, 4, 3, 3)], {"activation": "Relu"}),
    ("GridSample", [(1, 4, 8, 8), (1, 5, 5, 2)], {}),
    ("DynamicQuantizeMatMul", [X, ((32, 8), UINT8), (1,), ((1,), UINT8)], {}),
    (
        "QMoE",
        [(6, 32), (6, 4), ((4, 64, 16), UINT8), (4, 64), None, ((4, 32, 32), UINT8), (4, 32)],
        {"k": 1, "expert_weight_bits": 4},
    ),
]

# ONNX Runtime has no kernel for these on a CPU, and nothing runs them.
WITHOUT_KERNEL = {
    (kind, "tensor(double)")
    for kind in ("BiasGelu", "Gelu", "TransposeMatMul", "FusedGemm", "FusedConv", "GridSample")
}


@cache
def schema_of(kind: str) -> Any:
    found = [s for s in runtime.get_all_operator_schema() if s.name == kind]
    return max(found, key=lambda schema: (schema.domain == "com.microsoft", schema.since_version))


def types_of(kind: str) -> list[str]:
    """Return the floating-point types that the first operand may have."""
    schema = schema_of(kind)
    name = schema.inputs[0].typeStr
    (allowed,) = [c for c in schema.type_constraints if c.type_param_str == name]
    return [text for text in NAMES if text in allowed.allowed_type_strs]


def model_of(kind: str, operands: list[Operand], attributes: dict[str, Any], drawn: int) -> Any:
    infos, names = [], []
    for number, operand in enumerate(operands):
        names.append(f"x{number}" if operand is not None else "")
        if operand is None:
            continue
        is_typed = len(operand) == 2 and not isinstance(operand[0], int)
        sizes, element = operand if is_typed else (operand, drawn)
        infos.append(helper.make_tensor_value_info(names[-1], element, sizes))
    domain = "" if schema_of(kind).domain == "" else "com.microsoft"
    results = ["y"] + (["k", "v"] if kind == "GroupQueryAttention" else [])
    node = helper.make_node(kind, names, results, domain=domain, **attributes)
    last = helper.make_node("Identity", ["y"], ["z"])
    graph = helper.make_graph(
        [node, last], kind, infos, [helper.make_tensor_value_info("z", drawn, None)]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        pytest.param(case, text, id=f"{case[0]}-{text}")
        for case in CASES
        for text in types_of(case[0])
        if (case[0], text) not in WITHOUT_KERNEL
    ],
)
def test_every_type_of_the_schema(case: Any, text: str) -> None:
    found = value_types(infer_types(model_of(*case, NAMES[text])).graph)
    reference = value_types(infer_types(model_of(*case, TensorProto.FLOAT)).graph)
    for name in ("y", "k", "v"):
        if name in reference:
            wanted = onnx.TypeProto()
            wanted.CopyFrom(reference[name])
            wanted.tensor_type.elem_type = NAMES[text]
            assert found[name] == wanted


def test_bfloat16_next_to_float16(tmp_path: Path) -> None:
    """Both stay apart: each has a type of its own while ONNX Runtime is asked."""
    proto = model_of("FastGelu", [X, WIDE], {}, TensorProto.BFLOAT16)
    node = helper.make_node("Gelu", ["h"], ["g"], domain="com.microsoft")
    proto.graph.node.append(node)
    proto.graph.input.append(helper.make_tensor_value_info("h", TensorProto.FLOAT16, X))
    proto.graph.output.append(helper.make_tensor_value_info("g", TensorProto.FLOAT16, None))
    found = value_types(infer_types(proto).graph)
    assert found["y"].tensor_type.elem_type == TensorProto.BFLOAT16
    assert found["g"].tensor_type.elem_type == TensorProto.FLOAT16
