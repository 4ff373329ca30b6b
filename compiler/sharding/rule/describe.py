"""Conversion of an operation in the IR to the hashable description that rules read."""

from __future__ import annotations

from functools import cache
from typing import Any

from tensoropt.compiler.layout.sizes import Open
from tensoropt.compiler.sharding.rule.in_place import overwrites
from tensoropt.compiler.sharding.rule.one_pass import in_memory
from tensoropt.compiler.sharding.rule.op_info import BodyInfo, OpInfo, TensorInfo
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.lifetimes import block_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.sizes import sizes_of_type

__all__ = ["TypeInfos", "describe", "tensor_info"]

_STRING_BYTES = 8
_CONDITION = 1  # position of the condition among the arguments of a Loop's body


def describe(op: ir.Operation, versions: dict[str, int], infos: TypeInfos | None = None) -> OpInfo:
    """Return the description of an ``onnx.*`` operation.

    ``versions`` maps each ONNX domain to its opset version, ``""`` for the standard domain.
    ``infos`` caches the descriptions of types between calls.
    """
    infos = TypeInfos() if infos is None else infos
    operands, results = [v.type for v in op.operands], [v.type for v in op.results]
    op_type = op.name.removeprefix("onnx.")
    domain = onnx.split_name(op.name)[0]
    attributes = tuple(
        (name, _plain(attribute))
        for name, attribute in op.attributes.items()
        if not name.startswith("topt.")
    )
    return OpInfo(
        name=op_type,
        version=versions.get(domain, 1),
        operands=tuple(infos[kind] for kind in operands),
        results=tuple(infos[kind] for kind in results),
        attributes=tuple(sorted(attributes, key=lambda pair: pair[0])),
        literals=tuple(_literal(value) for value in op.operands),
        unranked=not all(
            isinstance(kind, ir.RankedTensorType | ir.NoneType) for kind in (*operands, *results)
        ),
        standard_version=versions.get("", 1),
        bodies=tuple(_body(block, versions, infos) for region in op.regions for block in region),
        in_memory=in_memory(op),
        in_place=overwrites(op),
    )


def _body(block: ir.Block, versions: dict[str, int], infos: TypeInfos) -> BodyInfo:
    *inner, end = (child.operation for child in block)
    ops = (op for op in inner if op.name not in (onnx.CONSTANT, onnx.NO_VALUE))
    return BodyInfo(
        tuple(describe(op, versions, infos) for op in ops), block_bytes(block), _goes_on(block, end)
    )


def _goes_on(block: ir.Block, end: ir.Operation) -> bool:
    """Return whether ``end`` first returns the second block argument, or constant true."""
    if not len(end.operands) or len(block.arguments) <= _CONDITION:
        return False
    value = end.operands[0]
    while (source := onnx.owner(value)) is not None and source.name == "onnx.Identity":
        value = source.operands[0]
    known = onnx.constant_value(value)
    return value == block.arguments[_CONDITION] or (known is not None and bool(known.all()))


class TypeInfos(dict[ir.Type, TensorInfo | None]):
    """Cache of :func:`tensor_info` by type; returns the same object each time."""

    def __missing__(self, kind: ir.Type) -> TensorInfo | None:
        return self.setdefault(kind, tensor_info(kind))


@cache
def _element(text: str) -> tuple[str, int]:
    element = element_of(text)
    if element is None:
        return text, 1
    # ONNX Runtime stores a string as a handle.
    return element.numpy, _STRING_BYTES if element.name == "STRING" else -(-element.bits // 8)


def tensor_info(type_: ir.Type) -> TensorInfo | None:
    """Return shape and element type of a ranked tensor type, ``None`` for any other type."""
    if not isinstance(type_, ir.RankedTensorType):
        return None
    sizes = sizes_of_type(type_)
    shape = tuple(size if isinstance(size, int) else None for size in sizes)
    assumed = tuple(size if isinstance(size, Open) else None for size in sizes)
    dtype, item_bytes = _element(str(type_.element_type))
    return TensorInfo(shape, dtype, item_bytes, assumed if any(assumed) else ())


def _plain(attribute: ir.Attribute) -> Any:
    """Return an attribute as int, float, str, or a tuple of them; a tensor as its text."""
    for kind in (ir.IntegerAttr, ir.FloatAttr, ir.StringAttr):
        if isinstance(attribute, kind):
            return attribute.value
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseF32ArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(_plain(item) for item in attribute)
    return str(attribute)


def _literal(value: ir.Value) -> tuple[str, tuple[int, ...], bytes] | None:
    array = onnx.constant_value(value)
    if array is None or array.dtype == object:
        return None
    return array.dtype.name, array.shape, array.tobytes()
