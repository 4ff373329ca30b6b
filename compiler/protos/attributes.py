"""Conversion between ONNX attributes and MLIR attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from tensoropt.compiler.protos.types import TypeTable, type_proto
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import dense_to_array, element_of_array, to_dense
from tensoropt.dialects.mlir import ir

__all__ = ["AttributeTable", "attribute_proto", "tensor_proto"]

Kind = onnx.AttributeProto
T = TypeVar("T")


class AttributeTable:
    """Creates MLIR attributes in the current context, memoized by value."""

    def __init__(self, types: TypeTable) -> None:
        self._types = types
        self._made: dict[bytes, ir.Attribute] = {}
        self._i64 = ir.IntegerType.get_signless(64)
        self._f32 = ir.F32Type.get()
        self._makers: dict[int, Callable[[onnx.AttributeProto], ir.Attribute]] = {
            Kind.INT: lambda a: ir.IntegerAttr.get(self._i64, a.i),
            Kind.FLOAT: lambda a: ir.FloatAttr.get(self._f32, a.f),
            Kind.STRING: lambda a: ir.StringAttr.get(a.s),
            Kind.TENSOR: lambda a: self.tensor(a.t),
            Kind.TYPE_PROTO: lambda a: ir.TypeAttr.get(self._types.type(a.tp)),
            Kind.INTS: lambda a: ir.DenseI64ArrayAttr.get(list(a.ints)),
            Kind.FLOATS: lambda a: ir.DenseF32ArrayAttr.get(list(a.floats)),
            Kind.STRINGS: lambda a: _array(ir.StringAttr.get, a.strings),
            Kind.TENSORS: lambda a: _array(self.tensor, a.tensors),
            Kind.TYPE_PROTOS: lambda a: _array(
                lambda tp: ir.TypeAttr.get(self._types.type(tp)), a.type_protos
            ),
        }

    def attribute(self, proto: onnx.AttributeProto) -> ir.Attribute:
        """Return the MLIR attribute for any kind except a graph, which becomes a region."""
        key = proto.SerializeToString()
        if key not in self._made:
            self._made[key] = self._makers[proto.type](proto)
        return self._made[key]

    def tensor(self, proto: onnx.TensorProto) -> ir.Attribute:
        """Return the literal of a tensor with inline bytes."""
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            raise UserError("tensor attribute has external or very large data, expected a literal")
        try:
            return to_dense(numpy_helper.to_array(proto))
        except ValueError as error:
            raise UserError(f"tensor '{proto.name}' cannot be read: {error}") from None


def _array(make: Callable[[T], ir.Attribute], items: Iterable[T]) -> ir.Attribute:
    return ir.ArrayAttr.get([make(item) for item in items])


def attribute_proto(name: str, value: ir.Attribute) -> onnx.AttributeProto:
    """Return the ONNX attribute ``name``; raises :class:`UserError` for a kind unknown to ONNX."""
    made = onnx.AttributeProto(name=name)
    for kind, number, fill in _WRITERS:
        if isinstance(value, kind):
            made.type = number
            fill(made, value)
            return made
    if isinstance(value, ir.ArrayAttr):
        return _array_proto(made, list(value))
    if not str(value).startswith("dense<"):
        raise UserError(f"attribute '{name}' has no ONNX kind, got: {value}")
    made.type = Kind.TENSOR
    made.t.CopyFrom(tensor_proto(dense_to_array(value)))
    return made


_WRITERS: tuple[
    tuple[Any, onnx.AttributeProto.AttributeType, Callable[[Any, Any], object]], ...
] = (
    (ir.IntegerAttr, Kind.INT, lambda made, value: setattr(made, "i", value.value)),
    (ir.FloatAttr, Kind.FLOAT, lambda made, value: setattr(made, "f", value.value)),
    (ir.StringAttr, Kind.STRING, lambda made, value: setattr(made, "s", value.value_bytes)),
    (ir.DenseI64ArrayAttr, Kind.INTS, lambda made, value: made.ints.extend(value)),
    (ir.DenseF32ArrayAttr, Kind.FLOATS, lambda made, value: made.floats.extend(value)),
    (ir.TypeAttr, Kind.TYPE_PROTO, lambda made, value: made.tp.CopyFrom(type_proto(value.value))),
)


def _array_proto(made: onnx.AttributeProto, items: list[ir.Attribute]) -> onnx.AttributeProto:
    if all(isinstance(item, ir.StringAttr) for item in items):
        made.type = Kind.STRINGS
        made.strings.extend(ir.StringAttr(item).value_bytes for item in items)
    elif all(isinstance(item, ir.TypeAttr) for item in items):
        made.type = Kind.TYPE_PROTOS
        made.type_protos.extend(type_proto(ir.TypeAttr(item).value) for item in items)
    else:
        made.type = Kind.TENSORS
        made.tensors.extend(tensor_proto(dense_to_array(item)) for item in items)
    return made


def tensor_proto(array: npt.NDArray[np.generic], name: str = "") -> onnx.TensorProto:
    """Return ``array`` as a tensor with raw bytes (text for strings)."""
    element = element_of_array(array)
    if element.name != "STRING":
        return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    made = onnx.TensorProto(name=name, data_type=element.number, dims=array.shape)
    texts = array.reshape(-1).tolist()
    made.string_data.extend(t.encode() if isinstance(t, str) else t for t in texts)
    return made
