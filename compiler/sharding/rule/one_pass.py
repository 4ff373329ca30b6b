"""Memory traffic of the arithmetic of an update, which a rank runs as one pass over its arrays."""

from __future__ import annotations

from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_text
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.support.arithmetic import ARITHMETIC, CAST

__all__ = ["in_memory"]

_STEPS = frozenset(f"onnx.{name}" for name in (*ARITHMETIC, CAST))
_NARROW = ("f16", "bf16")


def in_memory(op: ir.Operation) -> tuple[int, ...] | None:
    """Return the operands and results that the pass of ``op`` reads or writes in memory.

    Positions count through operands, then results. Return ``None`` if the op is part of no pass. An
    array that several steps read counts for the step built first. Linear in the readers of the
    operands.
    """
    if not _is_step(op):
        return None
    read = [n for n, value in enumerate(op.operands) if _is_array(value) and _fetches(op, value)]
    written = any(not _is_step(use.owner.operation) for use in op.results[0].uses)
    return (*read, *([len(op.operands)] if written else ()))


def _is_step(op: ir.Operation) -> bool:
    """Return whether the runtime fuses an op into a pass (``fuse_elementwise``)."""
    if op.name not in _STEPS or onnx.phase(op) != "update":
        return False
    (result,) = op.results
    arrays = {value.type for value in op.operands if _is_array(value)}
    shapes = {tuple(ir.RankedTensorType(kind).shape) for kind in (*arrays, result.type)}
    if not _is_array(result) or not arrays or len(shapes) > 1:
        return False
    elements = {element_text(kind) for kind in {value.type for value in (*op.operands, result)}}
    if op.name == f"onnx.{CAST}":
        return elements <= {"f32", *_NARROW}
    return elements == {"f32"}


def _fetches(op: ir.Operation, value: ir.Value) -> bool:
    """Return whether ``op`` is the first step that reads ``value`` from memory."""
    maker = onnx.owner(value)
    if maker is not None and _is_step(maker):
        return False
    readers = (use.owner.operation for use in value.uses)
    return _number(op) == min(_number(reader) for reader in readers if _is_step(reader))


def _number(op: ir.Operation) -> int:
    # Hand-written IR may lack numbers; then every reader of an array fetches it.
    return keys.ID.get(op.attributes, 0)


def _is_array(value: ir.Value) -> bool:
    kind = value.type
    return isinstance(kind, ir.RankedTensorType) and kind.rank > 0
