"""Operators that move elements about: what they leave in place can be split."""

from __future__ import annotations

from collections.abc import Sequence

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

__all__: list[str] = []


@sharding_rule("Transpose")
def _transpose(info: OpInfo) -> Rule:
    rank = len(info.shape(0))
    order = info.attribute("perm", tuple(reversed(range(rank))))
    factors = [FactorMap({0: source}, {0: dim}) for dim, source in enumerate(order)]
    return rule_of(info, factors, linear=linear_in(info, (0,)))


@sharding_rule("Concat")
def _concat(info: OpInfo) -> Rule:
    rank, present = len(info.result_shape()), range(len(info.operands))
    axis = axis_of(info, 1, rank)
    factors = [FactorMap(dict.fromkeys(present, d), {0: d}) for d in range(rank) if d != axis]
    return rule_of(info, factors, linear=linear_in(info, tuple(present)))


@sharding_rule("Split")
def _split(info: OpInfo) -> Rule:
    rank = len(info.shape(0))
    axis = axis_of(info, 0, rank)
    return _keeping(info, [dim for dim in range(rank) if dim != axis])


def _keeping(info: OpInfo, dims: Sequence[int], *, linear: bool = True) -> Rule:
    """Return the rule that splits ``dims``, which operand 0 and the results have in common."""
    groups = linear_in(info, (0,)) if linear else ()
    return rule_of(info, kept_factors(info, dims), linear=groups)


@sharding_rule("Slice")
def _slice(info: OpInfo) -> Rule | None:
    """Dimensions that keep their size can be split: their bounds are clamped to a shorter one too.

    A negative step reverses a dimension that keeps its size; ``None`` where one may be.
    """
    backward, rank = _backward(info), len(info.shape(0))
    if backward is None:
        return None
    return _keeping(info, [dim for dim in range(rank) if dim not in backward])


def _backward(info: OpInfo) -> set[int] | None:
    if info.operand(4) is None:
        return set()
    steps, rank = info.literal_ints(4), len(info.shape(0))
    if steps is None or all(step > 0 for step in steps):
        return None if steps is None else set()
    axes = list(range(len(steps))) if info.operand(3) is None else info.literal_ints(3)
    if axes is None:
        return None
    return {axis % rank for axis, step in zip(axes, steps, strict=True) if step < 0}


@sharding_rule("Pad")
def _pad(info: OpInfo) -> Rule | None:
    """Dimensions without padding can be split; constant padding adds up only where it is 0."""
    padded = _padded_dims(info) if info.version >= 2 else None
    if padded is None:
        return None
    dims = [dim for dim in range(len(info.shape(0))) if dim not in padded]
    return _keeping(info, dims, linear=_pads_nothing_constant(info))


def _padded_dims(info: OpInfo) -> set[int] | None:
    """Return the dimensions that may be padded, or ``None`` if nothing is known of them."""
    rank = len(info.shape(0))
    axes = list(range(rank)) if info.operand(3) is None else info.literal_ints(3)
    pads = list(info.attribute("pads", ())) if info.version < 11 else info.literal_ints(1)
    if axes is None:
        return None
    if pads is None:
        return {axis % rank for axis in axes}
    both = zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)
    return {axis % rank for axis, begin, end in both if begin or end}


def _pads_nothing_constant(info: OpInfo) -> bool:
    if info.attribute("mode", "constant") != "constant":
        return True
    if info.version < 11:
        return not info.attribute("value", 0.0)
    value = info.literal(2)
    return info.operand(2) is None or (value is not None and not value.any())


@sharding_rule("CumSum", "CumProd")
def _cumulative(info: OpInfo) -> Rule | None:
    axis = info.literal_ints(1)
    rank = len(info.shape(0))
    if axis is None:
        return None
    others = [dim for dim in range(rank) if dim != axis[0] % rank]
    return _keeping(info, others, linear=info.name == "CumSum")


@sharding_rule("CenterCropPad")
def _center(info: OpInfo) -> Rule:
    """Dimensions without a new size stay where they are; the others move around their middle."""
    rank = len(info.shape(0))
    moved = {axis % rank for axis in info.attribute("axes", range(rank))}
    return _keeping(info, [dim for dim in range(rank) if dim not in moved])


@sharding_rule("Trilu")
def _trilu(info: OpInfo) -> Rule:
    return _keeping(info, range(len(info.shape(0)) - 2))


@sharding_rule("ReverseSequence")
def _reverse_sequence(info: OpInfo) -> Rule:
    """The lengths go along the batch; time is reversed, so it stays whole."""
    batch, time = info.attribute("batch_axis", 1), info.attribute("time_axis", 0)
    factors = [FactorMap({0: batch, 1: 0}, {0: batch})]
    factors += kept_factors(info, [d for d in range(len(info.shape(0))) if d not in (batch, time)])
    return rule_of(info, factors, linear=linear_in(info, (0,)))
