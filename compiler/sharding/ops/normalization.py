"""Normalisations: dimensions of the statistics stay whole, or their sums are reduced inside."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.ops.layer_normalization import (
    NORMALIZATION_FLOPS,
    inner_sum,
    inverse_deviation,
    split_axes,
)
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, axis_of, kept_factors, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.mlir import ir

__all__ = ["batch", "group", "instance", "local_response", "lp", "mean_variance"]

# Index of the group factor of GroupNormalization.
_GROUPS = 1


@sharding_rule("BatchNormalization")
def batch(info: OpInfo) -> Rule | None:
    """Split every dimension; in training, with statistics per channel, only the channels."""
    if len(info.shape(0)) < 2 or not info.attribute("spatial", 1):
        return None  # parameters per element, not per channel
    whole = _trains(info)
    statistics = [i for i, result in enumerate(info.results) if i and result is not None]
    channels = FactorMap(
        {0: 1, **dict.fromkeys(range(1, 5), 0)}, {0: 1, **dict.fromkeys(statistics, 0)}
    )
    others = [
        FactorMap({0: dim}, {0: dim}, can_split=not whole)
        for dim in range(len(info.shape(0)))
        if dim != 1
    ]
    return rule_of(info, [channels, *others], flops_per_point=NORMALIZATION_FLOPS if whole else 2.0)


def _trains(info: OpInfo) -> bool:
    if info.version < 7:
        return not info.attribute("is_test", 0)
    if info.version < 14:
        return any(result is not None for result in info.results[1:])
    return bool(info.attribute("training_mode", 0))


@sharding_rule("InstanceNormalization")
def instance(info: OpInfo) -> Rule:
    """Split every dimension; a spatial dimension needs two all-reduces inside."""
    rank = len(info.shape(0))
    reduced = range(2, rank)
    can_split = info.version >= BROADCAST_VERSION and all(info.shape(0)[2:])
    factors = [
        FactorMap({0: 0}, {0: 0}, padded=True),
        FactorMap({0: 1, 1: 0, 2: 0}, {0: 1}, padded=True),
        *(FactorMap({0: dim}, {0: dim}, can_split=can_split) for dim in reduced),
    ]
    inner = (inner_sum(info, reduced),) * 2
    return rule_of(
        info, factors, localize=_localize_instance, flops_per_point=NORMALIZATION_FLOPS, inner=inner
    )


def _localize_instance(local: LocalOp) -> list[ir.Value]:
    reduced = range(2, len(local.info.shape(0)))
    axes = split_axes(local, reduced)
    if not axes:
        return local.clone()
    make = Arithmetic(local)
    x = make.wide(local.operands[0])
    x = make.binary("Sub", x, make.mean(x, reduced, axes))
    y = make.as_result(make.binary("Mul", x, inverse_deviation(make, x, reduced, axes)))
    trailing = range(1, 1 + len(reduced))
    scale, bias = (make.unsqueeze(operand, trailing) for operand in local.operands[1:3])
    return [make.binary("Add", make.binary("Mul", y, scale), bias)]


@sharding_rule("GroupNormalization")
def group(info: OpInfo) -> Rule:
    """Split batch and groups; scale and bias run along the groups, per group or per channel."""
    groups = int(info.attribute("num_groups"))
    spatial = [FactorMap({0: d}, {0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    factors = [
        FactorMap({0: 0}, {0: 0}, padded=True),
        FactorMap({0: 1, 1: 0, 2: 0}, {0: 1}, size=groups),
        *spatial,
        window_loop([count(info.shape(0)[1:2]) // groups]),
    ]
    return rule_of(info, factors, localize=_divide_groups, flops_per_point=NORMALIZATION_FLOPS)


def _divide_groups(local: LocalOp) -> list[ir.Value]:
    return local.clone(attributes=local.divide_attributes(_GROUPS, "num_groups"))


@sharding_rule("LRN")
def local_response(info: OpInfo) -> Rule:
    """Split all dimensions except the channels, because neighbouring channels are summed."""
    factors = [
        FactorMap({0: dim}, {0: dim}, can_split=dim != 1) for dim in range(len(info.shape(0)))
    ]
    window = window_loop([int(info.attribute("size", 1))])
    return rule_of(info, [*factors, window], flops_per_point=2.0)


@sharding_rule("LpNormalization")
def lp(info: OpInfo) -> Rule:
    """Split all dimensions except the dimension of the norm."""
    rank = len(info.shape(0))
    axis = axis_of(info, -1, rank)
    others = kept_factors(info, (dim for dim in range(rank) if dim != axis))
    whole = FactorMap({0: axis}, {0: axis}, can_split=False)
    return rule_of(info, [*others, whole], flops_per_point=4.0)


@sharding_rule("MeanVarianceNormalization")
def mean_variance(info: OpInfo) -> Rule | None:
    """Split the dimensions that are not normalised."""
    if info.version < 9:
        return None  # no attribute `axes` before opset 9
    rank = len(info.shape(0))
    reduced = {axis % rank for axis in info.attribute("axes", (0, 2, 3))}
    factors = [FactorMap({0: dim}, {0: dim}, can_split=dim not in reduced) for dim in range(rank)]
    return rule_of(info, factors, flops_per_point=NORMALIZATION_FLOPS)
