"""Models of each opset that ONNX Runtime loads, with operators of many of its versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from importer.models import F32, model, node, run, saved, untyped, value
from onnx import numpy_helper

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.pipeline.driver import run_phase
from tensoropt.compiler.protos.versions import max_opset
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function

pytestmark = pytest.mark.usefixtures("mlir_context")

RNG = np.random.default_rng(0)
NEWEST = max_opset("") or 0
UINT8, UINT4, INT4 = onnx.TensorProto.UINT8, onnx.TensorProto.UINT4, onnx.TensorProto.INT4


def stored(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def prepared(proto: onnx.ModelProto, folder: Path, **inputs: Any) -> ir.Module:
    """Check that the prepared model computes what the file does; return it."""
    path = saved(proto, folder)
    module = import_model(path)
    run_phase(module, "prepare")
    files = export_model(module, folder / "out.onnx", ParameterSource(path))
    for expected, got in zip(run(path, inputs), run(files[0], inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    return module


def shapes(module: ir.Module) -> list[list[int]]:
    """The shapes of the outputs; raises if one is not known."""
    body = function(module).regions[0].blocks[0].operations
    return [list(v.type.shape) for v in body[len(body) - 1].operation.operands]


@pytest.mark.parametrize("opset", range(13, NEWEST + 1))
def test_a_model_of_each_opset(opset: int, tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("ReduceMean", ["h", "axes"] if opset >= 18 else ["h"], ["m"],
             **({} if opset >= 18 else {"axes": [-1]})),
        node("Sub", ["h", "m"], ["c"]),
        node("Unsqueeze", ["c", "one"], ["u"]),
        node("Softmax", ["u"], ["p"], axis=-1),
        node("Einsum", ["p", "w"], ["e"], equation="abc,cd->abd"),
        node("Cast", ["e"], ["half"], to=onnx.TensorProto.FLOAT16),
        node("Cast", ["half"], ["back"], to=F32),
        node("Range", ["start", "limit", "delta"], ["r"]),
        node("Mod", ["r", "limit"], ["mod"], fmod=0),
        node("Cast", ["mod"], ["rf"], to=F32),
        node("Celu", ["rf"], ["celu"]),
        node("Add", ["back", "celu"], ["y"]),
    ]  # fmt: skip
    literals = [stored("w", RNG.normal(size=(8, 8)).astype(np.float32)), stored("axes", [-1]),
                stored("one", [1]), stored("start", 0), stored("limit", 8),
                stored("delta", 1)]  # fmt: skip
    proto = model(nodes, [value("x", F32, [4, 8])], [untyped("y")], literals, opset=opset)
    module = prepared(proto, tmp_path, x=RNG.normal(size=(4, 8)).astype(np.float32))
    assert shapes(module) == [[4, 1, 8]]


def unpacked(opset: int, name: str, *, width: int) -> onnx.ModelProto:
    """A product with weights of 4 bits, two to a byte, unpacked by the operators ``name``."""
    halves = {
        "BitShift": [node("BitShift", ["w", "four"], ["high"], direction="RIGHT"),
                     node("BitShift", ["high", "four"], ["up"], direction="LEFT"),
                     node("BitwiseXor", ["w", "up"], ["low"])],
        "BitwiseAnd": [node("BitwiseAnd", ["w", "mask"], ["low"]),
                       node("BitShift", ["w", "four"], ["high"], direction="RIGHT")],
        "BitwiseNot": [node("BitwiseNot", ["mask"], ["other"]),
                       node("BitwiseAnd", ["w", "mask"], ["low"]),
                       node("BitwiseAnd", ["w", "other"], ["upper"]),
                       node("BitwiseOr", ["upper", "mask"], ["both"]),
                       node("BitShift", ["both", "four"], ["high"], direction="RIGHT")],
    }  # fmt: skip
    nodes = [
        *halves[name],
        node("Unsqueeze", ["low", "last"], ["l"]),
        node("Unsqueeze", ["high", "last"], ["h"]),
        node("Concat", ["l", "h"], ["both_halves"], axis=-1),
        node("Reshape", ["both_halves", "sizes"], ["q"]),
        *_dequantised(opset),
        node("Transpose", ["f"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"]),
    ]
    literals = [
        stored("w", RNG.integers(0, 256, (6, width // 2)).astype(np.uint8)),
        stored("four", np.uint8(4)), stored("mask", np.uint8(15)), stored("last", [-1]),
        stored("sizes", [0, -1]), stored("scale", RNG.random((6, 1)).astype(np.float32)),
        stored("eight", np.float32(8)),
    ]  # fmt: skip
    return model(nodes, [value("x", F32, [4, width])], [untyped("y")], literals, opset=opset)


def _dequantised(opset: int) -> list[onnx.NodeProto]:
    """Through a tensor of 4 bits where there is one, else through float32."""
    if not 21 <= opset < 28:  # ONNX Runtime 1.32 has no DequantizeLinear of opset 28
        return [node("Cast", ["q"], ["qf"], to=F32), node("Sub", ["qf", "eight"], ["centred"]),
                node("Mul", ["centred", "scale"], ["f"])]  # fmt: skip
    return [node("Cast", ["q"], ["q4"], to=UINT4),
            node("Squeeze", ["scale", "last"], ["scales"]),
            node("DequantizeLinear", ["q4", "scales"], ["f"], axis=0)]  # fmt: skip


@pytest.mark.parametrize("name", ["BitShift", "BitwiseAnd", "BitwiseNot"])
@pytest.mark.parametrize("opset", range(18, NEWEST + 1))
def test_weights_of_4_bits_are_unpacked(opset: int, name: str, tmp_path: Path) -> None:
    proto = unpacked(opset, name, width=16)
    module = prepared(proto, tmp_path, x=RNG.normal(size=(4, 16)).astype(np.float32))
    assert shapes(module) == [[4, 6]]
    assert "tensor<*" not in str(module)
