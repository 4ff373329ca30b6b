"""`unpack-sequences`: replace sequences of known length by tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.compiler.protos.types import type_proto
from tensoropt.compiler.shapes.refine import refine_types, replace_value
from tensoropt.dialects.build import Build, int_attr, ints_attr
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    constant_value,
    function,
    is_no_value,
    opsets,
    walk,
)
from tensoropt.dialects.sizes import tensor_type
from tensoropt.passes.base import Pass
from tensoropt.passes.fold_constants import fold_rounds
from tensoropt.passes.numbering import forget_removed

__all__ = ["UnpackSequencesPass"]

_SPLIT_SIZES_OPERAND = 13
"""First opset in which Split takes the sizes of its parts as an operand."""

_MAKES_TENSOR = ("onnx.SequenceAt", "onnx.SequenceLength", "onnx.ConcatFromSequence")

Items = list[ir.Value]


@dataclass(frozen=True)
class UnpackSequencesPass(Pass):
    """Replaces sequences of known length by tensors.

    PyTorch's exporter writes `torch.chunk` and `torch.split` as a `SplitToSequence` and a
    `SequenceAt` for each part, unless its optimizer runs. Sequences have no layouts and no
    gradients. So a `SplitToSequence` into parts of known sizes becomes a `Split`, a `SequenceAt`
    the tensor at its position, a `SequenceLength` a literal, and a `ConcatFromSequence` a `Concat`,
    through any `SequenceConstruct`, `SequenceEmpty`, `SequenceInsert`, `SequenceErase` and
    `Identity` between them. If a remaining operator such as a `Loop` reads a sequence, a
    `SequenceConstruct` makes it.

    Operations with an unknown position or size are kept, as are positions out of range, which ONNX
    Runtime refuses. After each round shapes are inferred and constants folded again, as the shape
    of a part may determine the sizes of the next part; rounds end when nothing changes. Refuses
    types that do not fit.
    """

    name: ClassVar[str] = "unpack-sequences"
    summary: ClassVar[str] = "Replace sequences of known length by tensors."

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            while _Round(module).unpack():
                refine_types(module)
                for _ in fold_rounds(module):
                    pass
            forget_removed(module)


class _Round:
    """One walk over the module, which unpacks the sequences known from its current literals."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.version = opsets(module).get("", 1)
        self.namer = OpNamer(module)
        self.items: dict[ir.Value, Items] = {}
        self.misjudged = False
        """True if an item has another rank than ONNX infers, so that later types are wrong."""

    def unpack(self) -> bool:
        """Replace the readers of known sequences; return whether anything was replaced."""
        sequences: list[ir.Operation] = []
        changed = False
        for op in list(walk(function(self.module))):
            if op.name in _SEQUENCES:
                found = _SEQUENCES[op.name](self, op)
                if found is not None:
                    self.items[op.results[0]] = found
                    sequences.append(op)
            elif op.name in _MAKES_TENSOR and op.operands[0] in self.items:
                changed |= self._replace(op)
            if self.misjudged:
                break
        for op in reversed(sequences):
            changed |= self._leave(op)
        return changed

    def _replace(self, op: ir.Operation) -> bool:
        """Replace ``op``, which reads a known sequence, by its result; return success."""
        with ir.InsertionPoint(op):
            made = _TENSORS[op.name](self, op, self.items[op.operands[0]])
        if made is None:
            return False
        self.misjudged = _rank(made) not in (None, _rank(op.results[0]))
        replace_value(op.results[0], made)
        op.erase()
        return True

    def _leave(self, op: ir.Operation) -> bool:
        """Remove an unused sequence; rebuild a used sequence from its items.

        Returns whether anything changed.
        """
        result = op.results[0]
        if next(iter(result.uses), None) is None:
            op.erase()
            return True
        if op.name in ("onnx.SequenceConstruct", "onnx.SequenceEmpty"):
            return False
        items, attributes, name = self.items[result], {}, "SequenceConstruct"
        if not items:
            element = type_proto(result.type).sequence_type.elem_type.tensor_type.elem_type
            attributes, name = {"dtype": int_attr(element)}, "SequenceEmpty"
        with ir.InsertionPoint(op):
            made = self._build(op).onnx(name, items, result.type, **attributes)
        result.replace_all_uses_with(made)
        op.erase()
        return True

    def _build(self, op: ir.Operation) -> Build:
        """Return the builder of an op that replaces ``op`` and gets its name."""
        return Build(op.location, self.version)

    # Operators that make sequences.

    def split(self, op: ir.Operation) -> Items | None:
        """Return the parts of a `SplitToSequence`, the results of a `Split`."""
        x, axis = op.operands[0], attribute(op, "axis", 0)
        sizes, keep = _sizes(op), _keeps(op)
        if sizes is None or (not keep and set(sizes) - {1}):
            return None
        with ir.InsertionPoint(op):
            parts = [x] if len(sizes) == 1 else self._parts(op, x, axis, sizes)
            if keep:
                return parts
            axis %= ir.RankedTensorType(x.type).rank
            return [NamedBuild(self.namer, op, self.version).squeeze(x, [axis]) for x in parts]

    def _parts(self, op: ir.Operation, x: ir.Value, axis: int, sizes: list[int]) -> Items:
        """Return the results of a new `Split`; an empty list if there are no sizes."""
        if not sizes:
            return []
        kinds = [_with_size(x.type, axis, size) for size in sizes]
        if self.version < _SPLIT_SIZES_OPERAND:
            given = {"axis": int_attr(axis), "split": ints_attr(sizes)}
            return self._build(op).onnx_many("Split", [x], kinds, **given)
        literal = NamedBuild(self.namer, op, self.version).ints(sizes)
        return self._build(op).onnx_many("Split", [x, literal], kinds, axis=int_attr(axis))

    def construct(self, op: ir.Operation) -> Items | None:
        """Return the items of a `SequenceConstruct`; an empty list for a `SequenceEmpty`."""
        return [*op.operands]

    def insert(self, op: ir.Operation) -> Items | None:
        """Return the items after a `SequenceInsert`, at the end unless a position is given."""
        items = self.items.get(op.operands[0])
        at = None if items is None else _position(op, 2, len(items), len(items) + 1)
        return None if items is None or at is None else [*items[:at], op.operands[1], *items[at:]]

    def erase(self, op: ir.Operation) -> Items | None:
        """Return the items after a `SequenceErase`, of the last item unless a position is given."""
        items = self.items.get(op.operands[0])
        at = None if not items else _position(op, 1, len(items) - 1, len(items))
        return None if items is None or at is None else [*items[:at], *items[at + 1 :]]

    def same(self, op: ir.Operation) -> Items | None:
        """Return the items of the operand of an `Identity`, ``None`` if it is not a sequence."""
        return self.items.get(op.operands[0])

    # Operators that read sequences.

    def item_at(self, op: ir.Operation, items: Items) -> ir.Value | None:
        """Return the item at the position of a `SequenceAt`."""
        at = _position(op, 1, len(items), len(items))
        return None if at is None else items[at]

    def length(self, op: ir.Operation, items: Items) -> ir.Value | None:
        """Return the number of items."""
        return self._build(op).constant(np.array(len(items), np.int64))

    def joined(self, op: ir.Operation, items: Items) -> ir.Value | None:
        """Return the items joined along a dimension, which is added first for `new_axis`."""
        axis, kind = attribute(op, "axis"), op.results[0].type
        if attribute(op, "new_axis", 0):
            if not items or not all(isinstance(x.type, ir.RankedTensorType) for x in items):
                return None
            axis %= ir.RankedTensorType(items[0].type).rank + 1
            make = NamedBuild(self.namer, op, self.version)
            items = [make.unsqueeze(x, [axis]) for x in items]
        if len(items) == 1:
            return items[0]
        return self._build(op).onnx("Concat", items, kind, axis=int_attr(axis)) if items else None


_SEQUENCES: dict[str, Callable[[_Round, ir.Operation], Items | None]] = {
    "onnx.SplitToSequence": _Round.split,
    "onnx.SequenceConstruct": _Round.construct,
    "onnx.SequenceEmpty": _Round.construct,
    "onnx.SequenceInsert": _Round.insert,
    "onnx.SequenceErase": _Round.erase,
    "onnx.Identity": _Round.same,
}
_TENSORS: dict[str, Callable[[_Round, ir.Operation, Items], ir.Value | None]] = {
    "onnx.SequenceAt": _Round.item_at,
    "onnx.SequenceLength": _Round.length,
    "onnx.ConcatFromSequence": _Round.joined,
}


def _operand(op: ir.Operation, index: int) -> ir.Value | None:
    """Return operand ``index``, ``None`` if it is omitted."""
    operands = [*op.operands]
    return operands[index] if index < len(operands) and not is_no_value(operands[index]) else None


def _keeps(op: ir.Operation) -> bool:
    """Return whether the parts of a `SplitToSequence` keep the split dimension.

    In ONNX, `keepdims` applies only if sizes are omitted. In ONNX Runtime it also applies to a
    single size for all parts, and PyTorch writes `unbind` with a size of 1.
    """
    given = _operand(op, 1)
    literal = None if given is None else constant_value(given)
    is_list = literal is not None and literal.ndim > 0
    return is_list or bool(attribute(op, "keepdims", 1))


def _sizes(op: ir.Operation) -> list[int] | None:
    """Return the sizes of the parts of a `SplitToSequence`, ``None`` if unknown."""
    given, whole = _operand(op, 1), _size(op.operands[0].type, attribute(op, "axis", 0))
    literal = np.array(1) if given is None else constant_value(given)
    if literal is None:
        return None
    if literal.ndim:
        sizes = [int(size) for size in literal]
        fits = whole is None or sum(sizes) == whole
        return sizes if sizes and min(sizes) >= 0 and fits else None
    step = int(literal)
    if whole is None or step < 1:
        return None
    return [min(step, whole - at) for at in range(0, whole, step)]


def _size(kind: ir.Type, axis: int) -> int | None:
    """Return the size of a dimension, which may count from the end; ``None`` if unknown."""
    if not isinstance(kind, ir.RankedTensorType) or not -kind.rank <= axis < kind.rank:
        return None
    axis %= kind.rank
    return None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis)


def _position(op: ir.Operation, index: int, default: int, end: int) -> int | None:
    """Return the position in operand ``index``, at least 0 and below ``end``.

    A negative position counts from the end of the sequence. ``None`` if unknown or out of range.
    """
    given = _operand(op, index)
    if given is None:
        return default if default < end else None
    literal = constant_value(given)
    if literal is None or literal.size != 1:
        return None
    at, length = int(literal.item()), end - (op.name == "onnx.SequenceInsert")
    at += length if at < 0 else 0
    return at if 0 <= at < end else None


def _rank(value: ir.Value) -> int | None:
    kind = value.type
    return kind.rank if isinstance(kind, ir.RankedTensorType) else None


def _with_size(kind: ir.Type, axis: int, size: int) -> ir.Type:
    """Return a tensor type with another size along ``axis``; the same type if it is unranked."""
    if not isinstance(kind, ir.RankedTensorType):
        return kind
    shape = [None if kind.is_dynamic_dim(d) else n for d, n in enumerate(kind.shape)]
    shape[axis] = size
    return tensor_type(shape, kind.element_type)
