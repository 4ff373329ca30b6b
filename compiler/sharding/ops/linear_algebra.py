"""Matrix products: Gemm, and MatMul and the runtime's variants with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, adds_up, aligned, linear_in, rule_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule

__all__ = ["fused_gemm", "gemm", "matmul", "product_loops", "quantized_gemm"]


@sharding_rule("MatMul", "com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")
def matmul(info: OpInfo) -> Rule | None:
    """Return the rule `b m k, b k n -> b m n`; a vector has no m (left) or no n (right).

    ``None`` if the runtime's own product moves the batch after the rows.
    """
    if info.attribute("transBatchA", 0) or info.attribute("transBatchB", 0):
        return None
    flips = (bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0)))
    factors = product_loops(info, flips=flips, can_sum=adds_up(info))
    if factors is None:
        return None
    return rule_of(info, factors, linear=linear_in(info, (0,), (1,)), flops_per_point=2.0)


def product_loops(
    info: OpInfo,
    left: int = 0,
    right: int = 1,
    *,
    can_sum: bool,
    flips: tuple[bool, bool] = (False, False),
    per_row: Sequence[int] = (),
    per_column: Sequence[int] = (),
) -> list[FactorMap] | None:
    """Return the factors of a product of two operands with broadcast batches, or ``None``.

    ``flips`` marks the transposed matrices. Operands in ``per_row`` and ``per_column`` have one
    element per row or column of the result, or one element for all. The sum can be split if
    ``can_sum``.
    """
    a, b = info.shape(left), info.shape(right)
    if not a or not b or any(info.rank(index) > 1 for index in (*per_row, *per_column)):
        return None
    batch = max(len(a), len(b), 2) - 2
    factors = [
        FactorMap(aligned(info, left, right, dim=dim, rank=batch + 2), {0: dim})
        for dim in range(batch)
    ]
    row, inner = _matrix(len(a), len(a) - 2, len(a) - 1, flips[0])
    column, other = _matrix(len(b), len(b) - 1, len(b) - 2, flips[1])
    summed = {left: inner, right: other}
    factors.append(FactorMap(summed, reduction="sum", can_split=can_sum, padded=can_sum))
    if row is not None:
        factors.append(FactorMap({left: row, **aligned(info, *per_row, dim=0, rank=1)}, {0: batch}))
    if column is not None:
        last = len(info.result_shape()) - 1
        places = {right: column, **aligned(info, *per_column, dim=0, rank=1)}
        factors.append(FactorMap(places, {0: last}))
    return factors


def _matrix(rank: int, kept: int, summed: int, flip: bool) -> tuple[int | None, int]:
    """Return the dimension that remains, ``None`` for a vector, and the dimension summed over."""
    if rank == 1:
        return None, 0
    return (summed, kept) if flip else (kept, summed)


@sharding_rule("Gemm")
def gemm(info: OpInfo) -> Rule:
    """Return the rule `m k, k n, m n -> m n`; the bias is partial whenever the product is."""
    rows = 1 if info.attribute("transA", 0) else 0
    columns = 0 if info.attribute("transB", 0) else 1
    factors = [
        FactorMap({0: rows, **aligned(info, 2, dim=0, rank=2)}, {0: 0}),
        FactorMap({1: columns, **aligned(info, 2, dim=1, rank=2)}, {0: 1}),
        FactorMap(
            {0: 1 - rows, 1: 1 - columns}, reduction="sum", can_split=adds_up(info), padded=True
        ),
    ]
    together = (2,) if info.operand(2) is not None else ()
    linear = linear_in(info, (0, *together), (1, *together))
    return rule_of(info, factors, linear=linear, additive=together, flops_per_point=2.0)


@sharding_rule("com.microsoft.FusedGemm")
def fused_gemm(info: OpInfo) -> Rule:
    """Split rows and columns of Gemm; the sum stays whole because an activation follows."""
    whole = gemm(info)
    assert whole is not None
    rows, columns, summed = whole.factors
    return replace(whole, factors=(rows, columns, replace(summed, can_split=False)), linear=())


@sharding_rule("com.microsoft.QGemm")
def quantized_gemm(info: OpInfo) -> Rule | None:
    """Split rows and columns of Gemm; the sum is rounded once. Columns may have scales."""
    flips = (bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0)))
    factors = product_loops(info, right=3, can_sum=False, flips=flips, per_column=(4, 5))
    if factors is None:
        return None
    bias = [FactorMap({**factor.operands, **aligned(info, 6, dim=dim, rank=2)}, factor.results)
            for dim, factor in enumerate(factors[1:])]  # fmt: skip
    return rule_of(info, [*bias, factors[0]], flops_per_point=2.0)
