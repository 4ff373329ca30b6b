"""Products of quantized matrices: integers with scales and zero points, or packed bits."""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.ops.linear_algebra import product_loops
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.mlir import ir

__all__ = ["bits", "dynamic", "integer", "integer_to_float", "requantized"]


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


# Indices of the factors over columns and over blocks.
_COLUMNS, _BLOCKS = 0, 1

_INT8_ROWS = 4
"""Accuracy level at which the left operand is quantized too, block by block."""


@sharding_rule("com.microsoft.MatMulNBits")
def bits(info: OpInfo) -> Rule | None:
    """Return the rule `m (b k), n b k, n b, n b, n -> m n`; b counts blocks that share a scale.

    Scales and zero points may be flat, `(n b)`; the blocks then stay whole. They also stay whole if
    4-bit zero points of a rank do not fill bytes. ``None`` with indices that reorder blocks, and
    for weights prepacked for one device.
    """
    if info.operand(4) is not None or info.attribute("weight_prepacked", 0):
        return None
    last, columns = len(info.shape(0)) - 1, int(info.attribute("N"))
    # Flat operands have no dimension along the blocks.
    places = {0: last, 1: 1, 2: 1, 3: 1}
    blocks = {i: dim for i, dim in places.items() if dim < info.rank(i)}
    factors = [
        present_factor(info, {1: 0, 2: 0, 3: 0, 5: 0}, {0: last}, size=columns),
        present_factor(info, blocks, {}, size=_block_pieces(info, blocks), reduction="sum"),
        *(FactorMap({0: dim}, {0: dim}) for dim in range(last)),
    ]
    inner = int(info.attribute("K")) // (factors[_BLOCKS].size or 1)
    bias = (5,) if info.operand(5) is not None else ()
    exact = info.attribute("accuracy_level", 0) != _INT8_ROWS
    return rule_of(
        info,
        [*factors, window_loop([inner])],
        linear=linear_in(info, (0, *bias)) if exact else (),
        additive=bias,
        localize=_divide_product,
        flops_per_point=2.0,
    )


def _block_pieces(info: OpInfo, places: dict[int, int]) -> int:
    """Return the number of parts into which the blocks can be split; 1 if they cannot."""
    zero_points = info.operand(3)
    if 2 not in places or (zero_points is not None and 3 not in places):
        return 1
    sizes = [info.shape(i)[dim] or 1 for i, dim in places.items() if i]
    whole = int(info.attribute("K")) == sizes[0] * int(info.attribute("block_size"))
    if zero_points is not None and zero_points.dtype == "uint8":
        # Zero points are packed; those of all blocks must fill whole bytes.
        blocks = info.shape(1)[1] or 0
        whole &= blocks * int(info.attribute("bits", 4)) == 8 * (zero_points.shape[1] or 0)
    return math.gcd(*sizes) if whole else 1


def _divide_product(local: LocalOp) -> list[ir.Value]:
    divided = {**local.divide_attributes(_COLUMNS, "N"), **local.divide_attributes(_BLOCKS, "K")}
    return local.clone(attributes=divided)
