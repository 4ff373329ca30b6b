"""For which ops of training steps ONNX Runtime has CUDA kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from steps import Array, Node, build, model_of, spec_of

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.training.gradients.registry import registered
from tensoropt.dialects.kernels import count_missing_kernels, has_kernel
from tensoropt.dialects.mlir import ir

RNG = np.random.default_rng(0)
INDICES = numpy_helper.from_array(np.array([0, 2, 1, 1, 3, 0, 2, 2]))
BOUNDS = {"at": [1], "to": [7], "dims": [1]}

# An image through what bfloat16 has kernels for and what it has none for, and their gradients.
NODES: list[Node] = [
    *((("Constant", [], name, {"value": numpy_helper.from_array(np.array(held))}))
      for name, held in BOUNDS.items()),
    ("Constant", [], "i", {"value": INDICES}),
    ("Conv", ["x", "k"], "c", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("Relu", ["c"], "r", {}),
    ("AveragePool", ["r"], "p", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("LeakyRelu", ["p"], "s", {}),
    ("Flatten", ["s"], "f", {}),
    ("MatMul", ["f", "w"], "m", {}),
    ("Slice", ["m", "at", "to", "dims"], "n", {}),
    ("Clip", ["n", "low"], "q", {}),
    ("Gather", ["q", "i"], "g", {}),
    ("Max", ["g", "q"], "o", {}),
    ("ReduceSum", ["o"], "l", {"keepdims": 0}),
]  # fmt: skip
WEIGHTS: dict[str, Array] = {
    "k": RNG.standard_normal((16, 8, 3, 3)).astype(np.float32),
    "w": RNG.standard_normal((16 * 16, 8)).astype(np.float32),
    "low": np.array(-1, np.float32),
}
FEEDS = {"x": np.zeros((8, 8, 8, 8), np.float32)}


def step(folder: Path, opset: int, precision: str) -> ir.Module:
    model = model_of(NODES, FEEDS, ["l"], WEIGHTS)
    model.opset_import[0].version = opset
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return build(path, spec_of("output:l", "adamw", precision=precision))


def types(module: ir.Module) -> set[str]:
    return {name for name in ("f32", "f16", "bf16") if f"x{name}>" in str(module)}


@pytest.mark.parametrize("opset", [20, 22, 24])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_a_step_without_gaps(opset: int, precision: str, tmp_path: Path) -> None:
    module = step(tmp_path, opset, precision)
    assert count_missing_kernels(module) == Counter()
    narrow = {"float32": set(), "float16": {"f16"}, "bfloat16": {"bf16"}}[precision]
    assert types(module) == {"f32"} | narrow


def test_products_stay_in_bfloat16(tmp_path: Path) -> None:
    text = str(step(tmp_path, 22, "bfloat16"))
    products = ("onnx.MatMul", "onnx.Gemm", 'onnx.Conv"')
    lines = [line for line in text.splitlines() if any(name in line for name in products)]
    assert len(lines) > 3
    assert all("xbf16>" in line and "xf32>" not in line for line in lines)


def test_what_stays_on_the_cpu_is_counted(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MaxPool", ["x"], "p", {"kernel_shape": [2, 2]}),
        ("ConvTranspose", ["p", "k"], "c", {"pads": [0, 0, 1, 1]}),
        ("Mish", ["c"], "h", {}),
        ("Mean", ["h", "c"], "m", {}),
        ("ReduceSum", ["m"], "l", {"keepdims": 0}),
    ]
    model = model_of(nodes, FEEDS, ["l"], {"k": np.zeros((8, 4, 3, 3), np.float32)})
    found = []
    for opset in (21, 22):
        model.opset_import[0].version = opset
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        found.append(count_missing_kernels(build(tmp_path / "model.onnx", spec_of("output:l"))))
    assert found[0] == {"ConvTranspose": 1, "Mean": 1}
    assert found[1] == {"ConvTranspose": 1, "Mean": 1, "MaxPool": 1}


def test_float8_has_kernels_for_casts() -> None:
    """The list of kernels has ONNX's names of types, not MLIR's."""
    text = """module attributes {topt.opset = {ai.onnx = 21 : i64}} {
      func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %h = "onnx.Cast"(%x) {to = 17 : si64} : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
        %y = "onnx.Cast"(%h) {to = 1 : si64} : (tensor<2xf8E4M3FN>) -> tensor<2xf32>
        return %y : tensor<2xf32>
      }
    }"""
    with driver.new_context():
        module = ir.Module.parse(text)
    assert count_missing_kernels(module) == Counter()


def test_kernels_by_version_and_type() -> None:
    assert has_kernel("ReduceSum", 13, {"T": "bfloat16"})
    assert not has_kernel("ReduceSum", 13, {"T": "uint8"})
    assert has_kernel("Conv", 11, {"T": "float"})
    assert not has_kernel("Conv", 11, {"T": "bfloat16"})
    assert has_kernel("com.microsoft.FusedMatMul", 1, {"T": "float16"})
    assert not has_kernel("Acos", 7, {"T": "float"})
    # Open-ended is for the version it begins with only.
    assert has_kernel("MaxPool", 12, {"T": "float", "I": "int64"})
    assert not has_kernel("MaxPool", 22, {"T": "float", "I": "int64"})


def test_inlined_functions_have_no_kernel_anywhere() -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    from tensoropt.dialects import kernels

    on_cpu = {held.op_name for held in get_all_opkernel_def() if not held.domain}
    standard = {name for name in registered() if "." not in name}
    schemas = (onnx.defs.get_schema(name) for name in standard - on_cpu)
    functions = {s.name for s in schemas if s.has_function or s.has_context_dependent_function}
    assert functions - kernels._kernels().keys() == kernels._INLINED & standard
    assert helper.make_node("Mish", ["x"], ["y"]).op_type in kernels._INLINED
