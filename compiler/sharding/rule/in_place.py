"""Operators that ONNX Runtime can run with a result in the memory of an operand."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["TAKES_ROOM", "overwritable", "overwrites"]

_MICROSOFT = "onnx.com.microsoft."

TAKES_ROOM = frozenset({_MICROSOFT + "GroupQueryAttention"})
"""Operators that accept a cache with room for more tokens than it holds. Another operand says how
many it holds, and the result has the size of the room."""

_OPERATORS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    _MICROSOFT + "GroupQueryAttention": {1: (3, 1), 2: (4, 2)},
    _MICROSOFT + "MultiHeadAttention": {1: (6, 1), 2: (7, 2)},
    _MICROSOFT + "DecoderMaskedMultiHeadAttention": {1: (5, 1), 2: (6, 2)},
    "onnx.TensorScatter": {0: (0, 1)},
}
"""By result: the operand that it can overwrite, and the operand with the values that are written.
All were measured on ONNX Runtime 1.31: both buffers may be the same, and only the new values are
written (decision 69). `com.microsoft.Attention` is absent because its CPU kernel refuses to run
with `past_present_share_buffer`."""

_PAST_LENGTHS = {
    _MICROSOFT + "MultiHeadAttention": 8,
    _MICROSOFT + "DecoderMaskedMultiHeadAttention": 7,
}
"""The operand with the number of tokens in the cache. Without it the result is a concatenation."""

_SHARES = "past_present_share_buffer"
_NEEDS_FLAG = frozenset({_MICROSOFT + "DecoderMaskedMultiHeadAttention"})


def overwritable(op: ir.Operation) -> dict[int, int]:
    """Return the operands that results of ``op`` can overwrite, by the number of the result."""
    if not _keeps_size(op):
        return {}
    pairs = {result: past for result, (past, _) in _OPERATORS.get(op.name, {}).items()}
    return {
        result: past
        for result, past in pairs.items()
        if result < len(op.results) and past < len(op.operands)
    }


def overwrites(op: ir.Operation) -> tuple[tuple[int, int, int], ...]:
    """Return the results of ``op`` that are marked as caches updated in place (`topt.updates`).

    Each is a triple: the result, the operand that it overwrites, and the operand with the new
    values, which are all that is written. Linear in the readers of the results.
    """
    found = []
    for result, past in overwritable(op).items():
        if any(map(_is_cache_in_place, op.results[result].uses)):
            new = _OPERATORS[op.name][result][1]
            is_packed = onnx.is_no_value(op.operands[new])  # query, key and value in operand 0
            found.append((result, past, 0 if is_packed else new))
    return tuple(found)


def _keeps_size(op: ir.Operation) -> bool:
    """Return whether results of ``op`` have the sizes of the operands that they can overwrite."""
    if op.name in _NEEDS_FLAG and not (
        _SHARES in op.attributes and ir.IntegerAttr(op.attributes[_SHARES]).value
    ):
        return False
    length = _PAST_LENGTHS.get(op.name)
    if length is None:
        return op.name in _OPERATORS
    return length < len(op.operands) and not onnx.is_no_value(op.operands[length])


def _is_cache_in_place(use: ir.OpOperand) -> bool:
    reader = use.owner.operation
    if reader.name != "func.return" or reader.parent is None:
        return False
    held = onnx.carried(reader.parent.operation, "res_attrs")
    if not held:
        return False
    own = held[use.operand_number]
    return keys.CACHE.on(own) and keys.UPDATES.on(own)
