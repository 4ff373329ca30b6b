"""Operands that hold sizes (of Reshape, Expand, Tile, ConstantOfShape), made local."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.dialects.build import Build
from tensoropt.dialects.mlir import ir

__all__ = ["has_local_sizes", "local_sizes"]

_WHERE_SINCE = 9


def has_local_sizes(info: OpInfo, operand: int) -> bool:
    """Say whether :func:`local_sizes` can be built: an unknown operand is merged by `Where`."""
    known = info.literal(operand) is not None or None not in info.result_shape()
    return known or info.version >= _WHERE_SINCE


def local_sizes(local: LocalOp, operand: int, sizes: Shape, pieces: Sequence[int]) -> ir.Value:
    """Return ``operand`` with the entries that ``sizes`` knows replaced; int64, one per dimension.

    A literal where that is all of them or the operand is one; else the other entries are taken from
    the operand when it runs, divided by their ``pieces``: -1, 0 and 1 say the same of a part.
    """
    import numpy as np

    known = np.array([size is not None for size in sizes], np.bool_)
    values = np.array([size or 0 for size in sizes], np.int64)
    if known.all():
        return local.constant(values)
    cut = np.where(known, 1, np.array(pieces, np.int64))
    literal = local.info.literal_ints(operand)
    if literal is not None:
        held = np.array(literal, np.int64)
        return local.constant(np.where(known, values, np.where(held > 1, held // cut, held)))
    build, own = Build(local.op.location, local.info.standard_version), local.operands[operand]
    if (cut > 1).any():
        part = build.div(own, build.constant(cut))
        own = build.where(build.compare("Greater", own, build.ints([1])), part, own)
    return build.where(build.constant(known), build.constant(values), own)
