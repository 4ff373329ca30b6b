"""Operands that hold sizes (of Reshape, Expand, Tile, ConstantOfShape), made local."""

from __future__ import annotations

from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["has_local_sizes", "local_sizes"]

_WHERE_SINCE = 9


def has_local_sizes(info: OpInfo, operand: int) -> bool:
    """Say whether :func:`local_sizes` can be built: an unknown operand is merged by `Where`."""
    known = info.literal(operand) is not None or None not in info.result_shape()
    return known or info.version >= _WHERE_SINCE


def local_sizes(local: LocalOp, operand: int, sizes: Shape) -> ir.Value:
    """Return ``operand`` with the entries that ``sizes`` knows replaced; int64, one per dimension.

    A literal where that is all of them or the operand is one; else the other entries are taken from
    the operand when it runs.
    """
    import numpy as np

    known = np.array([size is not None for size in sizes], np.bool_)
    values = np.array([size or 0 for size in sizes], np.int64)
    if known.all():
        return local.constant(values)
    held = local.info.literal_ints(operand)
    if held is not None:
        return local.constant(np.where(known, values, np.array(held, np.int64)))
    int64 = ir.IntegerType.get_signless(64)
    operands = [local.constant(known), local.constant(values), local.operands[operand]]
    return local.onnx("Where", operands, tensor_type([len(sizes)], int64))
