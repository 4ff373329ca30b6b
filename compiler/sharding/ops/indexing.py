"""Operators that select elements by index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.blocks import Packed, Span, local_start, packed, packing
from tensoropt.compiler.sharding.rule.factors import (
    SUMMABLE,
    FactorMap,
    axis_of,
    kept_factors,
    linear_in,
    rule_of,
)
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count
from tensoropt.dialects.build import ints_attr, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import SQUEEZE_OPERANDS_SINCE, WHERE_SINCE

if TYPE_CHECKING:
    import numpy as np

__all__ = ["fill_indices", "index_fills", "mask_inside", "position", "scalar", "where"]


@sharding_rule("Gather")
def _gather(info: OpInfo) -> Rule:
    """Split the data except its axis, then the indices, then the axis (the vocabulary).

    A rank with a part of the axis gathers its own rows and writes zeros elsewhere, so that the
    results of the ranks add up. Types that do not add up keep the axis whole.
    """
    data, outer = info.shape(0), len(info.shape(1))
    axis = axis_of(info, 0, len(data))
    kept = [dim for dim in range(len(data)) if dim != axis]
    places = [dim if dim < axis else dim - 1 + outer for dim in kept]
    factors = [
        FactorMap({0: dim}, {0: made}, padded=True) for dim, made in zip(kept, places, strict=True)
    ]
    factors += [
        FactorMap({1: dim}, {0: axis + dim}, padded=True, fills=True) for dim in range(outer)
    ]
    if info.version >= WHERE_SINCE and _adds_up(info.operands[0]):
        factors.append(FactorMap({0: axis}, reduction="sum", counted=True, padded=True))
    return _gather_rule(info, factors)


def _gather_rule(info: OpInfo, factors: Sequence[FactorMap]) -> Rule:
    linear, inner = linear_in(info, (0,)), index_fills(info, factors)
    return rule_of(info, factors, linear=linear, localize=_gather_locally, inner=inner)


@packing("Gather")
def _pick_block(info: OpInfo) -> Packed | None:
    """Pick one index, which is a block of the dimension.

    A list of one index keeps the dimension, as a slice does.
    """
    axis, picked = axis_of(info, 0, len(info.shape(0))), info.literal_ints(1)
    size = info.shape(0)[axis]
    if picked is None or len(picked) != 1 or size is None:
        return None
    start = picked[0] % size
    if len(info.shape(1)) == 1:
        return Packed((Span((0, axis), (len(info.operands), axis), start),), _pick_locally)
    return Packed(cuts=(((0, axis), start), ((0, axis), start + 1)))


@sharding_rule("com.microsoft.GatherBlockQuantized")
def _gather_blocks(info: OpInfo) -> Rule:
    """Split the indices, the axis (the vocabulary), and other dimensions, as for Gather.

    Scales and zero points are gathered with their elements. The dimension in which elements are
    packed is split between blocks.
    """
    rank, outer = len(info.shape(0)), len(info.shape(1))
    axis = axis_of(info, 0, rank, "gather_axis")
    tables = [index for index in (0, 2, 3) if info.operand(index) is not None]
    factors = [
        FactorMap({1: dim}, {0: axis + dim}, padded=True, fills=True) for dim in range(outer)
    ]
    for dim in range(rank):
        places, made = dict.fromkeys(tables, dim), dim if dim < axis else dim - 1 + outer
        if dim == axis and info.standard_version >= WHERE_SINCE and _adds_up(info.results[0]):
            factors.append(
                FactorMap(places, reduction="sum", counted=True, padded=True, fills=True)
            )
        elif dim != axis:
            factors.append(FactorMap(places, {0: made}, size=_packed_parts(info, dim, made)))
    return rule_of(info, factors, localize=_gather_locally, inner=index_fills(info, factors))


def _packed_parts(info: OpInfo, dim: int, made: int) -> int | None:
    """Return the number of parts of a packed dimension; ``None`` if it is not packed.

    Each part has whole blocks, and its zero points fill bytes.
    """
    rank, size = len(info.shape(0)), info.result_shape()[made]
    in_blocks = axis_of(info, 1, rank, "quantize_axis") == dim
    if not in_blocks:
        return None if dim < rank - 1 else 1
    blocks = info.shape(2)[dim] or 0
    if size != blocks * int(info.attribute("block_size", 128)):
        return 1
    points = info.shape(3)[dim] if info.operand(3) is not None else blocks
    return math.gcd(blocks, info.shape(0)[dim] or 0, points or 0)


def _adds_up(tensor: TensorInfo | None) -> bool:
    return tensor is not None and tensor.dtype in SUMMABLE


def _gather_locally(local: LocalOp) -> list[ir.Value]:
    fill_indices(local)
    name = "gather_axis" if local.info.name.endswith("GatherBlockQuantized") else "axis"
    rank = len(local.info.shape(0))
    axis = axis_of(local.info, 0, rank, name)
    factor = local.rule.operands[0][axis]
    if factor is None or local.pieces(factor) == 1:
        return local.clone()
    size = local.info.shape(0)[axis]
    assert size is not None
    own = position(local, size, factor)
    mine = mask_inside(local, own, local.part(factor))
    [gathered] = local.clone({1: where(local, mine, own, scalar(local, 1, 0))})
    trailing = 0 if local.info.name == "GatherElements" else rank - axis - 1
    kept = _trailing_ones(local, mine, trailing)
    return [where(local, kept, gathered, Arithmetic(local).scalar(0.0, gathered))]


def index_fills(info: OpInfo, factors: Sequence[FactorMap]) -> tuple[InnerStep, ...]:
    """Return the copies of the indices, operand 1, that :func:`fill_indices` makes."""
    along = [number for number, factor in enumerate(factors) if 1 in factor.operands]
    indices = info.operand(1)
    if indices is None:
        return ()
    points = count([factors[number].factor(info).size for number in along])
    each = indices.elements * indices.item_bytes // points
    return tuple(InnerStep((number,), tuple(along), each, "copy", padded=True) for number in along)


def fill_indices(local: LocalOp) -> None:
    """Replace the padding of the indices, operand 1, by index 0, which is in range."""
    for dim, factor in enumerate(local.rule.operands[1]):
        if factor is not None:
            local.operands[1] = local.fill_padding(local.operands[1], dim, factor, 0)


def position(local: LocalOp, size: int, factor: int) -> ir.Value:
    """Return the indices relative to the rank's first element.

    Indices outside the rank's part are outside the range from 0 to the size of the part.
    """
    import numpy as np

    indices, pieces = local.operands[1], local.pieces(factor)
    negative = _compare(local, "Less", indices, scalar(local, 1, 0))
    wrapped = local.onnx("Add", [indices, scalar(local, 1, size)], indices.type)
    counted = where(local, negative, wrapped, indices)
    starts = np.arange(pieces) * local.part(factor)
    start = local.axis_constant(starts.astype(_dtype(local, 1)), local.axes(factor))
    return local.onnx("Sub", [counted, start], indices.type)


def mask_inside(local: LocalOp, own: ir.Value, size: int) -> ir.Value:
    """Return a mask of the positions of operand 1 in the rank's part of ``size`` elements."""
    below = _compare(local, "Less", own, scalar(local, 1, 0))
    from_start = local.onnx("Not", [below], below.type)
    before_end = _compare(local, "Less", own, scalar(local, 1, size))
    return local.onnx("And", [from_start, before_end], below.type)


def _compare(local: LocalOp, op_type: str, left: ir.Value, right: ir.Value) -> ir.Value:
    flags = ir.RankedTensorType.get(
        ir.RankedTensorType(left.type).shape, ir.IntegerType.get_signless(1)
    )
    return local.onnx(op_type, [left, right], flags)


def where(local: LocalOp, condition: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return ``left`` where the condition is true, else ``right``; either can be a scalar."""
    return local.onnx("Where", [condition, left, right], left.type)


def _dtype(local: LocalOp, operand: int) -> np.dtype[np.generic]:
    import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
    import numpy as np

    info = local.info.operand(operand)
    assert info is not None
    return np.dtype(info.dtype)


def scalar(local: LocalOp, operand: int, value: int) -> ir.Value:
    """Return a scalar of the element type of ``operand``."""
    import numpy as np

    return local.constant(np.array(value, _dtype(local, operand)))


def _trailing_ones(local: LocalOp, value: ir.Value, count: int) -> ir.Value:
    """Return ``value`` with ``count`` trailing dimensions of size 1 appended."""
    import numpy as np

    if count == 0:
        return value
    own = ir.RankedTensorType(value.type)
    shape = [None if own.is_dynamic_dim(d) else own.get_dim_size(d) for d in range(own.rank)]
    result = tensor_type([*shape, *[1] * count], own.element_type)
    axes = list(range(own.rank, own.rank + count))
    if local.info.standard_version < SQUEEZE_OPERANDS_SINCE:
        return local.onnx("Unsqueeze", [value], result, axes=ints_attr(axes))
    return local.onnx("Unsqueeze", [value, local.constant(np.array(axes, np.int64))], result)


@sharding_rule("GatherElements")
def _gather_elements(info: OpInfo) -> Rule:
    """Split the axis of the indices with whole data, and other dimensions of equal size.

    Indices shorter than the data read only its first part, which splitting both would change. The
    axis of the data (the vocabulary) can be split as for Gather.
    """
    axis = axis_of(info, 0, len(info.shape(0)))
    factors = [
        FactorMap({1: d} if d == axis else {0: d, 1: d}, {0: d}, padded=True, fills=True)
        for d in range(len(info.shape(0)))
    ]
    if _adds_up(info.operands[0]):
        factors.append(FactorMap({0: axis}, reduction="sum", counted=True, padded=True))
    return _gather_rule(info, factors)


@sharding_rule("GatherND")
def _gather_nd(info: OpInfo) -> Rule | None:
    """Split the index batch, and the dimensions of the data that the indices do not address.

    The size of the last dimension of the indices is the number of data dimensions they address.
    """
    data, indices = info.shape(0), info.shape(1)
    batch, depth = info.attribute("batch_dims", 0), indices[-1]
    if depth is None:
        return None
    outer = len(indices) - 1
    factors = [
        FactorMap({0: dim, 1: dim} if dim < batch else {1: dim}, {0: dim}) for dim in range(outer)
    ]
    rest = range(batch + depth, len(data))
    factors += [FactorMap({0: dim}, {0: outer + at}) for at, dim in enumerate(rest)]
    return rule_of(info, factors, linear=linear_in(info, (0,)))


@packing("GatherND")
def _pick_unit(info: OpInfo) -> Packed | None:
    """Pick one index of the first dimension, which is a block."""
    data, indices, picked = info.shape(0), info.shape(1), info.literal_ints(1)
    if picked is None or len(picked) != 1 or len(indices) != 2 or not data[0]:
        return None
    start = picked[0] % data[0]
    return Packed((Span((0, 0), (len(info.operands), 0), start),), _pick_locally)


def _pick_locally(local: LocalOp) -> list[ir.Value]:
    """Return the index that a rank picks from its part."""
    import numpy as np

    blocks = packed(local.info)
    assert blocks is not None
    (span,) = blocks.spans
    if not local.strategy.operands[0].axes_splitting(span.whole[1]):
        return local.clone()
    start = np.full(len(local.info.shape(1)) * (1,), local_start(local, span), _dtype(local, 1))
    return local.clone({1: local.constant(start)})


@sharding_rule("OneHot")
def _one_hot(info: OpInfo) -> Rule:
    rank = len(info.shape(0))
    axis = axis_of(info, -1, rank + 1)
    factors = [FactorMap({0: dim}, {0: dim + (dim >= axis)}) for dim in range(rank)]
    return rule_of(info, factors)


@sharding_rule("TopK")
def _top_k(info: OpInfo) -> Rule:
    """Split every dimension except the axis, along which elements compete."""
    rank = len(info.shape(0))
    axis = axis_of(info, -1, rank)
    return rule_of(info, kept_factors(info, [dim for dim in range(rank) if dim != axis]))


@sharding_rule("Compress")
def _compress(info: OpInfo) -> Rule | None:
    """Split every dimension except the axis, which loses elements; decline a flattened operand."""
    if info.attribute("axis") is None:
        return None
    rank = len(info.shape(0))
    axis = axis_of(info, 0, rank)
    factors = kept_factors(info, [dim for dim in range(rank) if dim != axis])
    return rule_of(info, factors, linear=linear_in(info, (0,)))
