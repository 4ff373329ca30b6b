"""Small ONNX models for tests, and what ONNX Runtime says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tensoropt.compiler.importer.importer import import_model
from tensoropt.dialects.mlir import ir

MODELS = Path(__file__).parents[1] / "models"
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

value = helper.make_tensor_value_info
node = helper.make_node


def untyped(name: str) -> onnx.ValueInfoProto:
    """An output whose type is left to inference."""
    return onnx.ValueInfoProto(name=name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 20,
    domains: dict[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    ir_version: int = 10,
) -> onnx.ModelProto:
    imports = {"": opset, **(domains or {})}
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, initializers),
        opset_imports=[helper.make_opsetid(domain, v) for domain, v in imports.items()],
        functions=functions,
        ir_version=ir_version,
    )


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def imported(proto: onnx.ModelProto, folder: Path, **options: Any) -> ir.Module:
    return import_model(saved(proto, folder), **options)


def text(module: ir.Module) -> str:
    return str(module.operation.get_asm(enable_debug_info=True))


def feeds(path: Path, seed: int = 0, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Random inputs for the model in ``path``; token ids stay below 256."""
    rng, made = np.random.default_rng(seed), {}
    graph = onnx.load(path, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        if info.name in stored:
            continue
        kind = info.type.tensor_type
        shape = [d.dim_value or (sizes or {})[d.dim_param] for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype == np.bool_:
            made[info.name] = rng.integers(0, 2, shape).astype(dtype)
        elif dtype.kind in "iu":
            made[info.name] = rng.integers(0, 100, shape).astype(dtype)
        else:
            made[info.name] = rng.normal(size=shape).astype(dtype)
    return made


def run(path: Path, inputs: dict[str, Any], library: str | None = None) -> list[Any]:
    """Run a model file on ONNX Runtime without its optimiser."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library:
        options.register_custom_ops_library(library)
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))
