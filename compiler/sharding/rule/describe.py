"""Conversion of an operation in the IR to the hashable description that rules read."""

from __future__ import annotations

from functools import cache
from typing import Any

from tensoropt.compiler.layout.sizes import Open
from tensoropt.compiler.sharding.rule.in_place import overwrites
from tensoropt.compiler.sharding.rule.one_pass import in_memory
from tensoropt.compiler.sharding.rule.op_info import BodyInfo, OpInfo, TensorInfo
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import dense_to_array, element_of
from tensoropt.dialects.lifetimes import block_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.sizes import sizes_of_type

__all__ = ["Descriptions", "describe", "tensor_info"]

_STRING_BYTES = 8
_CONDITION = 1  # position of the condition among the arguments of a Loop's body


def describe(op: ir.Operation, versions: dict[str, int]) -> OpInfo:
    """Return the description of an ``onnx.*`` operation; see :class:`Descriptions`."""
    return Descriptions(versions).describe(op)


class Descriptions:
    """Describes operations and types; equal operations have the same object.

    ``versions`` maps each ONNX domain to its opset version, ``""`` for the standard domain.
    """

    def __init__(self, versions: dict[str, int]) -> None:
        self.versions = versions
        self.types = _TypeInfos()
        self._known: dict[tuple[object, ...], OpInfo] = {}
        self._distinct: dict[OpInfo, OpInfo] = {}

    def describe(self, op: ir.Operation) -> OpInfo:
        """Return the description of an ``onnx.*`` operation.

        MLIR's types and attributes are unique, so a look-up finds the description of an equal
        operation. An operation with bodies is described each time.
        """
        operands, results = [v.type for v in op.operands], [v.type for v in op.results]
        attributes = [pair for pair in op.attributes.items() if not pair[0].startswith("topt.")]
        literals = [onnx.literal(value) for value in op.operands]
        memory, place = in_memory(op), overwrites(op)
        bodies = tuple(self._body(block) for region in op.regions for block in region)
        case = (op.name, *operands, None, *results, *attributes, *literals, memory, place, bodies)
        if case in self._known:
            return self._known[case]
        info = OpInfo(
            name=op.name.removeprefix("onnx."),
            version=self.versions.get(onnx.split_name(op.name)[0], 1),
            operands=tuple(self.types[kind] for kind in operands),
            results=tuple(self.types[kind] for kind in results),
            attributes=tuple(sorted((name, _plain(attribute)) for name, attribute in attributes)),
            literals=tuple(map(_literal, literals)),
            unranked=not all(
                isinstance(kind, ir.RankedTensorType | ir.NoneType) for kind in operands + results
            ),
            standard_version=self.versions.get("", 1),
            bodies=bodies,
            in_memory=memory,
            in_place=place,
        )
        return self._known.setdefault(case, self._distinct.setdefault(info, info))

    def _body(self, block: ir.Block) -> BodyInfo:
        *inner, end = (child.operation for child in block)
        ops = (op for op in inner if op.name not in (onnx.CONSTANT, onnx.NO_VALUE))
        return BodyInfo(tuple(map(self.describe, ops)), block_bytes(block), _goes_on(block, end))


def _goes_on(block: ir.Block, end: ir.Operation) -> bool:
    """Return whether ``end`` first returns the second block argument, or constant true."""
    if not len(end.operands) or len(block.arguments) <= _CONDITION:
        return False
    value = end.operands[0]
    while (source := onnx.made_by(value, "Identity")) is not None:
        value = source.operands[0]
    known = onnx.constant_value(value)
    return value == block.arguments[_CONDITION] or (known is not None and bool(known.all()))


class _TypeInfos(dict[ir.Type, TensorInfo | None]):
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


def _literal(literal: ir.Attribute | None) -> tuple[str, tuple[int, ...], bytes] | None:
    array = None if literal is None else dense_to_array(literal)
    if array is None or array.dtype == object:
        return None
    return array.dtype.name, array.shape, array.tobytes()
