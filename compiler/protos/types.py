"""Conversion between ONNX types and MLIR types, and the names of symbolic dimensions."""

from __future__ import annotations

import onnx

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import Element, element_of, items_text
from tensoropt.dialects.mlir import ir

__all__ = [
    "TypeTable",
    "describe_type",
    "dim_names",
    "static_shape",
    "tensor_element",
    "type_proto",
]

_WRAPPED = {"sequence_type": "Seq", "optional_type": "Opt"}
_WORDS = {"Seq": "a sequence, each item", "Opt": "an optional value,"}


class TypeTable:
    """Creates MLIR types in the current context, memoized by value."""

    def __init__(self) -> None:
        self._made: dict[bytes, ir.Type] = {}

    def type(self, proto: onnx.TypeProto) -> ir.Type:
        """Return the MLIR type: `tensor<2x?xf32>`, `tensor<*xf32>`, `!onnx.Seq<..>`."""
        key = proto.SerializeToString()
        if key not in self._made:
            self._made[key] = self._make(proto)
        return self._made[key]

    def _make(self, proto: onnx.TypeProto) -> ir.Type:
        kind = proto.WhichOneof("value")
        if kind in _WRAPPED:
            inner = getattr(proto, kind).elem_type
            return ir.Type.parse(f"!onnx.{_WRAPPED[kind]}<{self.type(inner)}>")
        element = element_of(proto.tensor_type.elem_type) if kind == "tensor_type" else None
        if element is None:
            raise UserError(f"unsupported type, expected a tensor, got: {kind or 'none'}")
        if not proto.tensor_type.HasField("shape"):
            return ir.UnrankedTensorType.get(element.type())
        dynamic = ir.ShapedType.get_dynamic_size()
        # Some exporters write -1 for an unknown size, and inference propagates it.
        known = [d.HasField("dim_value") and d.dim_value >= 0 for d in proto.tensor_type.shape.dim]
        dims = zip(proto.tensor_type.shape.dim, known, strict=True)
        sizes = [d.dim_value if is_known else dynamic for d, is_known in dims]
        return ir.RankedTensorType.get(sizes, element.type())


def dim_names(proto: onnx.TypeProto) -> list[str] | None:
    """Return the symbolic name, or "", of each dimension; ``None`` if no dimension has one."""
    names = [dim.dim_param for dim in proto.tensor_type.shape.dim]
    return names if any(names) else None


def static_shape(kind: ir.Type) -> list[int] | None:
    """Return the shape of a tensor type if all dimensions are known, else ``None``."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    return list(kind.shape)


def tensor_element(kind: ir.Type) -> Element:
    """Return the element type of a tensor type; raises :class:`UserError` for any other."""
    found = None
    if isinstance(kind, (ir.RankedTensorType, ir.UnrankedTensorType)):
        found = element_of(str(kind.element_type))
    if found is None:
        raise UserError(f"type has no ONNX element type, expected a tensor, got: {kind}")
    return found


def describe_type(kind: ir.Type) -> str:
    """Return a type in words: `a sequence, each item a tensor of float32`."""
    for wrapper, words in _WORDS.items():
        if str(kind).startswith(f"!onnx.{wrapper}<"):
            return f"{words} {describe_type(_inner(kind))}"
    if not isinstance(kind, ir.RankedTensorType | ir.UnrankedTensorType):
        return f"no tensor ({kind})"
    element = element_of(str(kind.element_type))
    items = items_text(str(kind.element_type) if element is None else element.numpy)
    return f"a tensor of {items}" if kind.has_rank else f"a tensor of {items} of unknown rank"


def _inner(kind: ir.Type) -> ir.Type:
    """Return the type of the items of a sequence, or of an optional value."""
    return ir.Type.parse(str(kind).partition("<")[2][:-1], kind.context)


def type_proto(kind: ir.Type, names: list[str] | None = None) -> onnx.TypeProto:
    """Return the ONNX type of ``kind``; ``names`` are the names of its symbolic dimensions."""
    for field, wrapper in _WRAPPED.items():
        if str(kind).startswith(f"!onnx.{wrapper}<"):
            made = onnx.TypeProto()
            getattr(made, field).elem_type.CopyFrom(type_proto(_inner(kind)))
            return made
    number = tensor_element(kind).number
    if isinstance(kind, ir.UnrankedTensorType):
        return onnx.helper.make_tensor_type_proto(number, None)
    ranked = ir.RankedTensorType(kind)
    sizes = [
        ((names[i] or None) if names else None) if ranked.is_dynamic_dim(i) else size
        for i, size in enumerate(ranked.shape)
    ]
    return onnx.helper.make_tensor_type_proto(number, sizes)
