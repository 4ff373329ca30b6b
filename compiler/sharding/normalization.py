"""Normalisations: what they take statistics over is whole, or its sums are reduced inside."""

from __future__ import annotations

from typing import Any

from tensoropt.compiler.sharding.arithmetic import BROADCAST_VERSION, Arithmetic, sum_bytes
from tensoropt.compiler.sharding.local import LocalOp
from tensoropt.compiler.sharding.loops import Loop, aligned, axis_of, kept_loops, rule_of
from tensoropt.compiler.sharding.op_info import OpInfo
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import InnerReduction, Rule
from tensoropt.compiler.sharding.windows import count, window_loop

__all__ = ["batch", "group", "instance", "layer", "local_response", "lp", "mean_variance"]

# Two sums, a difference, a square, a product with the deviation, scale and bias.
_FLOPS = 8.0
_EPSILON = 1e-5

# The place of the group loop among the loops of GroupNormalization.
_GROUPS = 1


@sharding_rule("BatchNormalization")
def batch(info: OpInfo) -> Rule | None:
    """Return every dimension; in training, whose statistics are per channel, the channels only."""
    if len(info.shape(0)) < 2 or not info.attribute("spatial", 1):
        return None  # parameters per element, not per channel
    whole = _trains(info)
    statistics = [i for i, held in enumerate(info.results) if i and held is not None]
    channels = Loop({0: 1, **dict.fromkeys(range(1, 5), 0)}, {0: 1, **dict.fromkeys(statistics, 0)})
    others = [
        Loop({0: dim}, {0: dim}, can_split=not whole)
        for dim in range(len(info.shape(0)))
        if dim != 1
    ]
    return rule_of(info, [channels, *others], flops_per_point=_FLOPS if whole else 2.0)


def _trains(info: OpInfo) -> bool:
    if info.version < 7:
        return not info.attribute("is_test", 0)
    if info.version < 14:
        return any(held is not None for held in info.results[1:])
    return bool(info.attribute("training_mode", 0))


@sharding_rule("LayerNormalization", "RMSNormalization")
def layer(info: OpInfo) -> Rule:
    """Return every dimension; one that is normalised asks for all-reduces inside.

    Scale and bias align from the right; the statistics among the results have size 1 in the
    dimensions that are normalised.
    """
    reduced = _normalised(info)
    can_split = _can_expand(info, reduced)
    loops = [
        Loop(_aligned(info, dim), _statistics(info, dim, reduced), can_split=can_split)
        if dim in reduced
        else Loop(_aligned(info, dim), _statistics(info, dim, reduced))
        for dim in range(len(info.shape(0)))
    ]
    sums = 2 if info.name == "LayerNormalization" else 1
    inner = (_inner(info, reduced),) * sums
    return rule_of(info, loops, localize=_localize_layer, flops_per_point=_FLOPS, inner=inner)


def _normalised(info: OpInfo) -> range:
    rank = len(info.shape(0))
    return range(axis_of(info, -1, rank), rank)


def _can_expand(info: OpInfo, reduced: range) -> bool:
    """Say whether the op can be written out: its means need to know how many they are of."""
    sizes = [info.shape(0)[dim] for dim in reduced]
    return info.version >= BROADCAST_VERSION and None not in sizes


def _aligned(info: OpInfo, dim: int) -> dict[int, int]:
    """Return where the operands run along ``dim`` of the first; a stretched 1 does not."""
    rank, places = len(info.shape(0)), {0: dim}
    for index in range(1, len(info.operands)):
        places.update(aligned(info, index, dim, rank))
    return places


def _statistics(info: OpInfo, dim: int, reduced: range) -> dict[int, int]:
    present = [i for i, held in enumerate(info.results) if held is not None]
    return {index: dim for index in present if index == 0 or dim not in reduced}


def _inner(info: OpInfo, reduced: range) -> InnerReduction:
    held, kept = info.operand(0), range(len(info.shape(0)))
    assert held is not None
    item_bytes = sum_bytes(held.dtype, held.item_bytes)
    return InnerReduction(tuple(reduced), tuple(d for d in kept if d not in reduced), item_bytes)


def _split_axes(local: LocalOp, reduced: range) -> tuple[int, ...]:
    return tuple(sorted(axis for dim in reduced for axis in local.axes(dim)))


def _localize_layer(local: LocalOp) -> list[Any]:
    reduced = _normalised(local.info)
    axes = _split_axes(local, reduced)
    if not axes:
        return local.clone()
    make = Arithmetic(local)
    x = make.wide(local.operands[0])
    centre = None
    if local.info.name == "LayerNormalization":
        centre = make.mean(x, reduced, axes)
        x = make.binary("Sub", x, centre)
    inverse = _inverse_deviation(make, x, reduced, axes)
    y = make.as_result(make.binary("Mul", x, inverse))
    y = make.binary("Mul", y, local.operands[1])
    if local.info.operand(2) is not None:
        y = make.binary("Add", y, local.operands[2])
    return [y, *_kept_statistics(make, [centre, inverse])]


def _kept_statistics(make: Arithmetic, held: list[Any]) -> list[Any]:
    """Return mean and inverse deviation as the op has them, of type none where one is omitted."""
    infos = make.local.info.results[1:]
    return [
        make.local.no_value() if info is None else make.as_result(value, index)
        for index, (info, value) in enumerate(zip(infos, held, strict=False), 1)
    ]


def _inverse_deviation(make: Arithmetic, x: Any, dims: range, axes: tuple[int, ...]) -> Any:
    """Return 1 / sqrt(mean(x^2) + epsilon) over ``dims`` and the ranks along ``axes``."""
    variance = make.mean(make.binary("Mul", x, x), dims, axes)
    epsilon = float(make.local.info.attribute("epsilon", _EPSILON))
    shifted = make.binary("Add", variance, make.scalar(epsilon, variance))
    return make.unary("Reciprocal", make.unary("Sqrt", shifted))


@sharding_rule("InstanceNormalization")
def instance(info: OpInfo) -> Rule:
    """Return every dimension; a spatial one asks for two all-reduces inside."""
    rank = len(info.shape(0))
    reduced = range(2, rank)
    can_split = _can_expand(info, range(1, rank))
    loops = [
        Loop({0: 0}, {0: 0}),
        Loop({0: 1, 1: 0, 2: 0}, {0: 1}),
        *(Loop({0: dim}, {0: dim}, can_split=can_split) for dim in reduced),
    ]
    inner = (_inner(info, reduced),) * 2
    return rule_of(info, loops, localize=_localize_instance, flops_per_point=_FLOPS, inner=inner)


def _localize_instance(local: LocalOp) -> list[Any]:
    reduced = range(2, len(local.info.shape(0)))
    axes = _split_axes(local, reduced)
    if not axes:
        return local.clone()
    make = Arithmetic(local)
    x = make.wide(local.operands[0])
    x = make.binary("Sub", x, make.mean(x, reduced, axes))
    y = make.as_result(make.binary("Mul", x, _inverse_deviation(make, x, reduced, axes)))
    per_channel = [count(local.local_result_shape()[1:2]), *[1] * len(reduced)]
    scale, bias = (make.reshape(held, per_channel) for held in local.operands[1:3])
    return [make.binary("Add", make.binary("Mul", y, scale), bias)]


@sharding_rule("GroupNormalization")
def group(info: OpInfo) -> Rule:
    """Return batch and groups; scale and bias run along the groups, per group or per channel."""
    groups = int(info.attribute("num_groups"))
    spatial = [Loop({0: d}, {0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    loops = [
        Loop({0: 0}, {0: 0}),
        Loop({0: 1, 1: 0, 2: 0}, {0: 1}, size=groups),
        *spatial,
        window_loop([count(info.shape(0)[1:2]) // groups]),
    ]
    return rule_of(info, loops, localize=_divide_groups, flops_per_point=_FLOPS)


def _divide_groups(local: LocalOp) -> list[Any]:
    return local.clone(attributes=local.divided(_GROUPS, "num_groups"))


@sharding_rule("LRN")
def local_response(info: OpInfo) -> Rule:
    """Return all dimensions but the channels, whose neighbours are summed."""
    loops = [Loop({0: dim}, {0: dim}, can_split=dim != 1) for dim in range(len(info.shape(0)))]
    window = window_loop([int(info.attribute("size", 1))])
    return rule_of(info, [*loops, window], flops_per_point=2.0)


@sharding_rule("LpNormalization")
def lp(info: OpInfo) -> Rule:
    """Return all dimensions but the one whose norm is taken."""
    rank = len(info.shape(0))
    axis = axis_of(info, -1, rank)
    others = kept_loops(info, (dim for dim in range(rank) if dim != axis))
    whole = Loop({0: axis}, {0: axis}, can_split=False)
    return rule_of(info, [*others, whole], flops_per_point=4.0)


@sharding_rule("MeanVarianceNormalization")
def mean_variance(info: OpInfo) -> Rule | None:
    """Return the dimensions that are not normalised."""
    if info.version < 9:
        return None  # axes not by attribute
    rank = len(info.shape(0))
    reduced = {axis % rank for axis in info.attribute("axes", (0, 2, 3))}
    loops = [Loop({0: dim}, {0: dim}, can_split=dim not in reduced) for dim in range(rank)]
    return rule_of(info, loops, flops_per_point=_FLOPS)
