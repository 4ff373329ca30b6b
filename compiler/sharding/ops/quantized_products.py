"""Products of quantized matrices: integers with scales and zero points, or packed bits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.ops.linear_algebra import product_loops
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.build import element_type, int_attr, shape_of
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "attention",
    "bits",
    "dynamic",
    "integer",
    "integer_to_float",
    "normal_floats",
    "requantized",
]


@sharding_rule("MatMulInteger")
def integer(info: OpInfo) -> Rule | None:
    """Return the factors of a product; partial sums add up, each less its own zero points."""
    factors = product_loops(info, can_sum=True, per_row=(2,), per_column=(3,))
    return None if factors is None else rule_of(info, factors, flops_per_point=2.0)


@sharding_rule("QLinearMatMul")
def requantized(info: OpInfo) -> Rule | None:
    """Split rows and columns; the sum is rounded once, so partial sums do not add up."""
    factors = product_loops(info, right=3, can_sum=False, per_row=(1, 2, 6, 7), per_column=(4, 5))
    return None if factors is None else rule_of(info, factors, flops_per_point=2.0)


@sharding_rule("com.microsoft.MatMulIntegerToFloat")
def integer_to_float(info: OpInfo) -> Rule | None:
    """Return the factors of a product; the bias is partial whenever the product is."""
    factors = product_loops(info, can_sum=True, per_row=(2, 4), per_column=(3, 5, 6))
    additive = (6,) if info.operand(6) is not None else ()
    return (
        None if factors is None else rule_of(info, factors, additive=additive, flops_per_point=2.0)
    )


@sharding_rule("com.microsoft.DynamicQuantizeMatMul")
def dynamic(info: OpInfo) -> Rule | None:
    """Split the columns; the scale of the left operand depends on all its elements."""
    factors = product_loops(info, can_sum=False, per_column=(2, 3, 4))
    if factors is None:
        return None
    whole = [
        FactorMap(factor.operands, factor.results, can_split=0 not in factor.operands)
        for factor in factors
    ]
    return rule_of(info, whole, flops_per_point=2.0)


@sharding_rule("com.microsoft.QAttention")
def attention(info: OpInfo) -> Rule | None:
    """Split the batch. ``None`` for a mask that is shared or that has two lengths per sequence."""
    mask, batch = info.operand(5), info.sizes(0)[0]
    if mask is not None and mask.sizes[0] != batch:
        return None
    rows, (_, columns) = info.sizes(0)[1:], info.shape(1)
    return rule_of(
        info,
        [present_factor(info, {0: 0, 5: 0, 8: 1}, {0: 0, 1: 1}), window_loop([*rows, columns])],
        flops_per_point=2.0,
    )


@sharding_rule("com.microsoft.MatMulBnb4")
def normal_floats(info: OpInfo) -> Rule | None:
    """Return the rule `m k, (n k) -> m n`: blocks run along the rows of one flat weight.

    Columns stay whole if a block has elements of two of them. ``None`` for a weight of rows along
    the columns of the product.
    """
    if not info.attribute("transB", 1):
        return None
    inner, columns = int(info.attribute("K")), int(info.attribute("N"))
    last, whole = len(info.shape(0)) - 1, inner % int(info.attribute("block_size")) == 0
    factors = [
        FactorMap({1: 0, 2: 0}, {0: last}, size=columns, can_split=whole),
        *(FactorMap({0: dim}, {0: dim}, padded=True) for dim in range(last)),
        window_loop([inner]),
    ]
    linear = linear_in(info, (0,))
    return rule_of(info, factors, linear=linear, localize=_divide_columns, flops_per_point=2.0)


def _divide_columns(local: LocalOp) -> list[ir.Value]:
    return local.clone(attributes=local.divide_attributes(_COLUMNS, "N"))


# Indices of the factors over columns and over blocks.
_COLUMNS, _BLOCKS = 0, 1

_INT8_ROWS = 4
"""Accuracy level at which the left operand is quantized too, block by block."""

_SHARED_BLOCKS = 16
"""Packed zero points are split if their number is a multiple of this, so that the parts of up to 8
ranks fill bytes. Otherwise every rank stores all of them and shifts its own to the first bit."""


@sharding_rule("com.microsoft.MatMulNBits")
def bits(info: OpInfo) -> Rule | None:
    """Return the rule `m (b k), n b k, n b, n b, n -> m n`; b counts blocks that share a scale.

    The number of blocks may have padding. The left operand is then split evenly, between other
    elements than the weights, and ranks exchange the difference. ``None`` for weights prepacked for
    one device.
    """
    if info.attribute("weight_prepacked", 0):
        return None
    last, columns = len(info.shape(0)) - 1, int(info.attribute("N"))
    blocks = _blocks(info)
    factors = [
        present_factor(info, {1: 0, 2: 0, 3: 0, 5: 0}, {0: last}, size=columns),
        blocks,
        *(FactorMap({0: dim}, {0: dim}) for dim in range(last)),
    ]
    inner = int(info.attribute("K")) // (blocks.size or 1)
    bias = (5,) if info.operand(5) is not None else ()
    exact = info.attribute("accuracy_level", 0) != _INT8_ROWS
    return rule_of(
        info,
        [*factors, FactorMap({1: 2}, size=inner, can_split=False)],
        linear=linear_in(info, (0, *bias)) if exact else (),
        additive=bias,
        localize=_divide_product,
        flops_per_point=2.0,
        inner=_exchange(info, range(_BLOCKS + 1, len(factors))) if blocks.padded else (),
    )


def _blocks(info: OpInfo) -> FactorMap:
    """Return the factor over blocks.

    They stay whole if the last one is incomplete, if scales or zero points are flat, `(n b)`, or if
    indices assign elements to scales.
    """
    last, count = len(info.shape(0)) - 1, info.shape(1)[1] or 0
    places = {i: d for i, d in {0: last, 1: 1, 2: 1, 3: 1}.items() if info.operand(i) is not None}
    flat = any(info.rank(i) <= dim for i, dim in places.items())
    complete = int(info.attribute("K")) == count * int(info.attribute("block_size"))
    if flat or not complete or info.operand(4) is not None:
        return FactorMap({0: last}, size=1, reduction="sum")
    if not _packs_points(info):
        return FactorMap(places, size=count, reduction="sum", padded=True, fills=True)
    if count % _SHARED_BLOCKS == 0:
        return FactorMap(places, size=math.gcd(count, info.shape(3)[1] or 0), reduction="sum")
    del places[3]
    return FactorMap(places, size=count, reduction="sum", padded=True, fills=True)


def _packs_points(info: OpInfo) -> bool:
    """Return whether several zero points share a byte."""
    points = info.operand(3)
    return points is not None and points.dtype == "uint8" and int(info.attribute("bits", 4)) < 8


def _exchange(info: OpInfo, rows: Iterable[int]) -> tuple[InnerStep, ...]:
    """Return the exchange of elements of the left operand, and the copy of its part.

    Parts rounded up to whole blocks differ from even parts by about one block.
    """
    left = info.operand(0)
    assert left is not None
    block_bytes = int(info.attribute("block_size")) * left.item_bytes
    return (
        InnerStep((_BLOCKS,), tuple(rows), block_bytes, "collective_permute", padded=True),
        InnerStep((_BLOCKS,), (_BLOCKS, *rows), block_bytes, "copy", padded=True),
    )


def _divide_product(local: LocalOp) -> list[ir.Value]:
    """Return the product of the rank's columns and blocks; blocks of padding add nothing."""
    info, operands = local.info, {}
    attributes = {**local.divide_attributes(_COLUMNS, "N"), **local.divide_attributes(_BLOCKS, "K")}
    if local.is_padded(_BLOCKS):
        attributes["K"] = int_attr(local.part(_BLOCKS) * int(info.attribute("block_size")))
        operands[0] = _whole_blocks(local)
        for index in (2, 3):
            tensor = info.operand(index)
            if tensor is not None and tensor.dtype != "uint8":
                operands[index] = local.fill_padding(local.operands[index], 1, _BLOCKS, 0.0)
    if local.pieces(_BLOCKS) > 1 and _packs_points(info) and local.rule.operands[3][1] is None:
        operands[3] = _own_points(local)
    return local.clone(operands, attributes)


def _whole_blocks(local: LocalOp) -> ir.Value:
    """Return the left operand of the rank's blocks: its even part, joined to following elements.

    A part of whole blocks starts after the even part of the same rank and ends after it. Zeros
    follow the last element of all.
    """
    import numpy as np

    make, x = Arithmetic(local), local.operands[0]
    axes, ranks = local.axes(_BLOCKS), np.arange(local.pieces(_BLOCKS))
    dim, width = len(shape_of(x)) - 1, int(local.info.attribute("K"))
    even, own = shape_of(x)[dim] or 0, local.part(_BLOCKS) * int(local.info.attribute("block_size"))
    ends = np.minimum((ranks + 1) * own, width)
    parts = [x]
    while (sent := min(even, int((ends - (ranks + len(parts)) * even).max()))) > 0:
        sources = [int(rank + len(parts)) % len(ranks) for rank in ranks]
        first = make.slice(x, dim, 0, sent) if sent < even else x
        parts.append(local.collective("collective_permute", first, axes, sources=sources))
    joined = make.pad(make.concat(parts, dim), dim, (0, 1), 0.0)
    places = ranks[:, None] * own + np.arange(own)
    zero = (shape_of(joined)[dim] or 0) - 1
    found = np.where(places < width, places - ranks[:, None] * even, zero)
    return make.take(joined, local.axis_constant(found, axes), dim)


def _own_points(local: LocalOp) -> ir.Value:
    """Return the zero points of the rank's blocks, which may start inside of a byte.

    Two adjacent bytes have the bits of one byte of the rank: the upper bits of the first, and the
    lower bits of the second.
    """
    import numpy as np

    make, packed = Arithmetic(local), local.operands[3]
    axes, ranks = local.axes(_BLOCKS), np.arange(local.pieces(_BLOCKS))[:, None]
    width, count = int(local.info.attribute("bits", 4)), local.info.shape(1)[1] or 0
    own_bits, last = local.part(_BLOCKS) * width, (count * width - 1) // 8
    first = ranks * own_bits // 8 + np.arange(-(-own_bits // 8))
    shift = ranks * own_bits % 8

    def take(places: npt.NDArray[np.int64]) -> ir.Value:
        return make.take(packed, local.axis_constant(np.minimum(places, last), axes), 1)

    if not shift.any():
        return take(first)
    i32 = ir.IntegerType.get_signless(32)
    lower, upper = (make.cast(take(places), i32) for places in (first, first + 1))
    lower = make.div(lower, local.axis_constant((1 << shift).astype(np.int32), axes))
    upper = make.mul(upper, local.axis_constant((256 >> shift).astype(np.int32), axes))
    return make.cast(make.add(lower, upper), element_type(packed))
