"""Transforms over whole dimensions: Fourier transforms, determinants, columns to images."""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import (
    FactorMap,
    axis_of,
    kept_factors,
    linear_in,
    rule_of,
)
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, window_loop

__all__ = ["columns_to_image", "determinant", "fourier", "short_fourier"]

_AXIS_OPERAND_SINCE = 20


@sharding_rule("DFT")
def fourier(info: OpInfo) -> Rule | None:
    """Split all dimensions except the transformed one and the real/imaginary dimension.

    Work: 5 n log2 n per transform of n elements (Cooley and Tukey, 1965).
    """
    rank, axis = len(info.shape(0)), _axis(info)
    if axis is None:
        return None
    dims = [dim for dim in range(rank - 1) if dim != axis % rank]
    size = count([info.result_sizes()[axis % rank]])
    factors = [*kept_factors(info, dims), window_loop([size])]
    work = 5.0 * math.log2(max(size, 2))
    return rule_of(info, factors, linear=linear_in(info, (0,)), flops_per_point=work)


def _axis(info: OpInfo) -> int | None:
    """Return the transformed dimension, ``None`` if it is known only at run time."""
    if info.version < _AXIS_OPERAND_SINCE:
        return axis_of(info, 1, len(info.shape(0)))
    if info.operand(2) is None:
        return -2
    literal = info.literal_ints(2)
    return None if literal is None else literal[0]


@sharding_rule("STFT")
def short_fourier(info: OpInfo) -> Rule:
    """Split the batch; frames overlap."""
    _, frames, size, _ = info.result_sizes()
    factors = [FactorMap({0: 0}, {0: 0}), window_loop([frames, size])]
    work = 10.0 * math.log2(max(count([size]), 2))
    return rule_of(info, factors, linear=linear_in(info, (0,)), flops_per_point=work)


@sharding_rule("Det")
def determinant(info: OpInfo) -> Rule:
    """Split the dimensions before the matrices; elimination takes 2/3 n^3 operations per matrix."""
    rank = len(info.shape(0))
    size = count(info.shape(0)[-1:])
    factors = [*kept_factors(info, range(rank - 2)), window_loop([size] * 3)]
    return rule_of(info, factors, flops_per_point=2.0 / 3.0)


@sharding_rule("Col2Im")
def columns_to_image(info: OpInfo) -> Rule:
    """Split batch and channels; the blocks of a channel overlap."""
    channels = info.result_shape()[1]
    factors = [
        FactorMap({0: 0}, {0: 0}),
        FactorMap({0: 1}, {0: 1}, size=channels, can_split=channels is not None),
        window_loop([count(info.shape(0)[1:]) // (channels or 1)]),
    ]
    return rule_of(info, factors, linear=linear_in(info, (0,)), flops_per_point=1.0)
