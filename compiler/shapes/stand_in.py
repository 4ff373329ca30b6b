"""Replacement of bfloat16 by another element type, so that ONNX Runtime loads a graph on a CPU.

ONNX Runtime loads a graph, and infers types, only if it has a kernel for every node. It has almost
no kernels for bfloat16, but many for float16.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import numpy_helper

from tensoropt.compiler.protos.subgraphs import subgraphs

__all__ = ["replace_bfloat16"]

_BFLOAT16 = onnx.TensorProto.BFLOAT16
_STAND_INS = (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes of operators that contain an element type."""


def replace_bfloat16(proto: onnx.ModelProto) -> str | None:
    """Replace bfloat16 in ``proto`` by an element type that it does not use.

    A result of that type is then known to be bfloat16. Returns the name of the type in ONNX, or
    None if nothing was replaced: there is no bfloat16, or every stand-in type is used.
    """
    used = set(_element_types(proto))
    free = next((kind for kind in _STAND_INS if kind not in used), None)
    if _BFLOAT16 not in used or free is None:
        return None
    for graph, _ in subgraphs(proto.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == _BFLOAT16:
                info.type.tensor_type.elem_type = free
        for tensor in _tensors(graph):
            if tensor.data_type == _BFLOAT16:
                _retype(tensor, free)
        for attribute in _type_attributes(graph):
            if attribute.i == _BFLOAT16:
                attribute.i = free
    return str(onnx.TensorProto.DataType.Name(free))


def _element_types(proto: onnx.ModelProto) -> Iterator[int]:
    for graph, _ in subgraphs(proto.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            yield info.type.tensor_type.elem_type
        yield from (tensor.data_type for tensor in _tensors(graph))
        yield from (attribute.i for attribute in _type_attributes(graph))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _type_attributes(graph: onnx.GraphProto) -> Iterator[onnx.AttributeProto]:
    for node in graph.node:
        yield from (a for a in node.attribute if a.name in _TYPE_ATTRIBUTES and a.HasField("i"))


def _retype(tensor: onnx.TensorProto, kind: int) -> None:
    """Convert the values of ``tensor``; for external values, only the type changes."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor.data_type = kind
        return
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    values = numpy_helper.to_array(tensor).astype(dtype)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
