"""The type of every value as ONNX Runtime sees it, which knows its own operators."""

from __future__ import annotations

import re
from typing import Any

import onnx

from tensoropt.compiler.frontend.model_file import MAX_IR_VERSION

__all__ = ["runtime_types", "session_of"]

Types = dict[str, onnx.TypeProto]


def runtime_types(proto: onnx.ModelProto) -> Types:
    """Ask ONNX Runtime for the types of all values.

    The values become outputs of a session that never runs. An empty answer if it cannot load.
    """
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    del asked.graph.output[:]
    names = [name for node in asked.graph.node for name in node.output if name]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = session_of(asked)
    outputs = session.get_outputs() if session is not None else ()
    types = {o.name: held for o in outputs if (held := _runtime_type(o)) is not None}
    _forget_lengths(proto.graph, types)
    return types


def _forget_lengths(graph: onnx.GraphProto, types: Types) -> None:
    """Forget how long the caches are that GroupQueryAttention gives, if its operand 6 is not known:
    ONNX Runtime then takes them to be as long as those before."""
    constant = {t.name for t in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    for node in graph.node:
        if node.op_type == "GroupQueryAttention" and not constant.issuperset(node.input[6:7]):
            for name in set(node.output[1:3]) & types.keys():
                for dim in types[name].tensor_type.shape.dim[2:3]:
                    dim.Clear()


def session_of(proto: onnx.ModelProto) -> Any:
    """Return ONNX Runtime's session of a graph without weights, or ``None`` if it refuses it."""
    import onnxruntime as ort

    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    asked.ir_version = min(asked.ir_version, MAX_IR_VERSION)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(
            asked.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # a mistake in the model, or no kernel for an operator
        return None


_RUNTIME_ELEMENTS = {"float": "FLOAT", "double": "DOUBLE", "bool": "BOOL", "string": "STRING"}


def _runtime_type(output: object) -> onnx.TypeProto | None:
    match = re.fullmatch(r"tensor\((\w+)\)", output.type)  # type: ignore[attr-defined]
    if match is None:
        return None
    name = _RUNTIME_ELEMENTS.get(match[1], match[1].upper())
    shape = output.shape or None  # type: ignore[attr-defined]  # [] may be an unknown rank
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(name), shape)
