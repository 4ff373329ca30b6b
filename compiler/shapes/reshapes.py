"""Literal shapes of Reshape operations, derived from the names of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensoropt.compiler.protos.op_names import OpNamer
from tensoropt.compiler.shapes.symbols import Dims, reshape_literal
from tensoropt.dialects.elements import to_dense
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import CONSTANT, constant_value, function, walk

__all__ = ["shape_literal", "write_reshapes"]


def write_reshapes(module: ir.Module, dims: Mapping[ir.Value, Dims | None]) -> bool:
    """Make each `Reshape`'s shape a literal if ``dims`` determine it; return whether any changed.

    Sharding rules read these literals: a 0 marks a dimension that is copied from the operand.
    """
    changed, namer = False, OpNamer(module)
    for op in walk(function(module)):
        if op.name == "onnx.Reshape" and len(op.operands) == 2:
            changed |= _write(op, dims.get(op.operands[0]), dims.get(op.results[0]), namer)
    return changed


def _write(op: ir.Operation, source: Dims | None, result: Dims | None, namer: OpNamer) -> bool:
    if source is None or result is None or constant_value(op.operands[1]) is not None:
        return False
    literal = reshape_literal(source, result)
    if literal is None:
        return False
    op.operands[1] = shape_literal(op, literal, namer)
    if "allowzero" in op.attributes:
        del op.attributes["allowzero"]
    return True


def shape_literal(op: ir.Operation, shape: Sequence[int], namer: OpNamer) -> ir.Value:
    """Return a literal of ``shape``, created directly before its reader ``op``."""
    value = to_dense(np.array(shape, np.int64))
    with ir.InsertionPoint(op), namer.location(op, "shape"):
        made = ir.Operation.create(CONSTANT, [value.type], [], {"value": value})
    return made.results[0]
