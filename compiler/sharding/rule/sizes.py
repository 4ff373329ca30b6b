"""Local values of operands that contain sizes (Reshape, Expand, Tile, ConstantOfShape)."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.dialects.build import Build
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import WHERE_SINCE

__all__ = ["has_local_sizes", "local_sizes"]


def has_local_sizes(info: OpInfo, operand: int) -> bool:
    """Return whether :func:`local_sizes` can be built; unknown sizes need `Where`."""
    known = info.literal(operand) is not None or None not in info.result_shape()
    return known or info.version >= WHERE_SINCE


def local_sizes(local: LocalOp, operand: int, sizes: Shape, pieces: Sequence[int]) -> ir.Value:
    """Return ``operand`` with its known entries replaced by ``sizes``; int64, one per dimension.

    The result is a literal if all sizes are known or the operand is a literal. Otherwise the
    remaining entries are computed at run time, as the operand divided by ``pieces``; -1, 0, and 1
    mean the same for a part and stay unchanged.
    """
    import numpy as np

    known = np.array([size is not None for size in sizes], np.bool_)
    values = np.array([size or 0 for size in sizes], np.int64)
    if known.all():
        return local.constant(values)
    cut = np.where(known, 1, np.array(pieces, np.int64))
    literal = local.info.literal_ints(operand)
    if literal is not None:
        whole = np.array(literal, np.int64)
        return local.constant(np.where(known, values, np.where(whole > 1, whole // cut, whole)))
    build, own = Build(local.op.location, local.info.standard_version), local.operands[operand]
    if (cut > 1).any():
        part = build.div(own, build.constant(cut))
        own = build.where(build.compare("Greater", own, build.ints([1])), part, own)
    return build.where(build.constant(known), build.constant(values), own)
