"""Evaluation of one ``onnx.*`` operation on NumPy arrays with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from tensoropt.dialects import onnx as views
from tensoropt.dialects.mlir import ir

__all__ = ["Array", "evaluate", "make_node", "node_of", "run_node"]

Array = npt.NDArray[Any]
Kind = tuple[np.dtype[Any], tuple[int, ...] | None]
"""Element type of an operand and, for operators of the runtime, its shape."""

_IR_VERSION = 12
_LISTS = (
    (ir.DenseI64ArrayAttr, onnx.AttributeProto.INTS),
    (ir.DenseF32ArrayAttr, onnx.AttributeProto.FLOATS),
    (ir.ArrayAttr, onnx.AttributeProto.STRINGS),
)


def evaluate(
    op: ir.Operation, operands: Sequence[Array | None], versions: dict[str, int]
) -> list[Array | None]:
    """Return the results of ``op`` on ``operands``; ``None`` stands for an omitted value.

    ``versions`` maps each domain ("" for the standard domain) to its opset version.
    """
    return run_node(node_of(op), versions, operands)


def node_of(op: ir.Operation) -> onnx.NodeProto:
    """Return ``op`` as a node with inputs ``x0...`` and outputs ``y0...``."""
    if len(op.regions):
        raise NotImplementedError(f"{op.name}: operations with regions are not interpreted")
    domain, op_type = views.split_name(op.name)
    kept = [_attribute(op, name) for name in views.attributes(op)]
    given, present = (
        [not isinstance(value.type, ir.NoneType) for value in side]
        for side in (op.operands, op.results)
    )
    return make_node(op_type, domain, given, present, kept)


def make_node(
    op_type: str,
    domain: str,
    operands: Sequence[bool],
    results: Sequence[bool],
    attributes: Sequence[onnx.AttributeProto],
) -> onnx.NodeProto:
    """Return a node with inputs ``x0...`` and outputs ``y0...``; ``False`` marks omitted values."""
    node = onnx.helper.make_node(
        op_type,
        [f"x{i}" if present else "" for i, present in enumerate(operands)],
        [f"y{i}" if present else "" for i, present in enumerate(results)],
        domain=domain,
    )
    node.attribute.extend(attributes)
    return node


def run_node(
    node: onnx.NodeProto,
    versions: dict[str, int],
    operands: Sequence[Array | None],
    libraries: tuple[str, ...] = (),
) -> list[Array | None]:
    """Return the outputs of ``node``, ``None`` for an omitted output.

    ``libraries`` are the libraries of custom operators.
    """
    kinds = tuple(
        None if o is None else (o.dtype, o.shape if node.domain else None) for o in operands
    )
    session = _session(node.SerializeToString(), tuple(sorted(versions.items())), kinds, libraries)
    feeds = {f"x{i}": o for i, o in enumerate(operands) if o is not None}
    outputs = iter(session.run(None, feeds))
    return [next(outputs) if name else None for name in node.output]


@lru_cache(maxsize=1000)
def _session(
    node_bytes: bytes,
    versions: tuple[tuple[str, int], ...],
    kinds: tuple[Kind | None, ...],
    libraries: tuple[str, ...],
) -> ort.InferenceSession:
    node = onnx.NodeProto.FromString(node_bytes)
    inputs = [
        onnx.helper.make_tensor_value_info(
            f"x{i}", onnx.helper.np_dtype_to_tensor_dtype(kind[0]), kind[1]
        )
        for i, kind in enumerate(kinds)
        if kind is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in versions]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    for library in libraries:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _attribute(op: ir.Operation, name: str) -> onnx.AttributeProto:
    value = views.attribute(op, name)
    if isinstance(value, np.ndarray):
        value = onnx.numpy_helper.from_array(value)
    numbers = [number for kind, number in _LISTS if isinstance(op.attributes[name], kind)]
    return onnx.helper.make_attribute(name, value, attr_type=numbers[0] if numbers else None)
