"""Convolutions over any number of spatial dimensions, with groups, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.factors import (
    FactorMap,
    adds_up,
    aligned,
    linear_in,
    present_factor,
    rule_of,
)
from tensoropt.compiler.sharding.rule.halo import halos_of, inner_exchange, with_halo
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, spatial_loops, window_loop
from tensoropt.dialects.mlir import ir

__all__ = [
    "channel_loops",
    "convolution",
    "deformed_convolution",
    "fused_convolution",
    "integer_convolution",
    "requantized_convolution",
    "transposed_convolution",
]

# The place of the channel factor among the factors, whose groups the attribute `group` counts.
_CHANNELS = 1


@sharding_rule("Conv")
def convolution(info: OpInfo) -> Rule:
    """Return `n c i, m c k, m -> n m o`; several groups are split as wholes."""
    factors = _slid(info, _channels(info, 0, 1), info.shape(1)[2:])
    return _rule(info, factors, _slide, _exchanges(info, factors))


@sharding_rule("ConvTranspose")
def transposed_convolution(info: OpInfo) -> Rule:
    """Return `n c i, c m k, m -> n m o`, where every input element is one window of the result."""
    kernel, windows = info.shape(1)[2:], info.shape(0)[2:]
    if info.attribute("output_shape") or any(info.attribute("output_padding", ())):
        spatial = [FactorMap({0: dim + 2}, can_split=False) for dim in range(len(kernel))]
    else:
        spatial = spatial_loops(info, kernel, windows, side="operand", exact=True)
    factors = [*_channels(info, 1, 0), *spatial, window_loop(kernel)]
    return _rule(info, factors, _divide_groups)


def _slid(info: OpInfo, channels: list[FactorMap], kernel: Shape) -> list[FactorMap]:
    """Return the factors of a convolution: windows may reach into neighbouring parts."""
    windows = info.result_shape()[2:]
    spatial = spatial_loops(info, kernel, windows, side="result", halos=halos_of(info))
    return [*channels, *spatial, window_loop(kernel)]


def _exchanges(info: OpInfo, factors: list[FactorMap]) -> tuple[InnerStep, ...]:
    return inner_exchange(info, factors, [window.halo for window in halos_of(info)])


def channel_loops(
    info: OpInfo,
    *,
    outputs: int,
    inputs: int,
    can_sum: bool,
    weight: int = 1,
    per_channel: Sequence[int] = (2,),
) -> list[FactorMap]:
    """Return the factors over the batch and the channels.

    ``outputs`` and ``inputs`` are the dimensions of the operand ``weight`` along which the channels
    run. With several groups the first is merged with the groups and can be split as far as there
    are any. Operands ``per_channel`` hold an element per channel of the result, or one for all.
    """
    batch = FactorMap({0: 0}, {0: 0})
    each = {i: 0 for i in per_channel if aligned(info, i, 0, 1)}
    groups = int(info.attribute("group", 1))
    if groups == 1:
        reduced = FactorMap({0: 1, weight: inputs}, reduction="sum", can_split=can_sum)
        return [batch, FactorMap({weight: outputs, **each}, {0: 1}), reduced]
    pairs = count(info.shape(weight)[:2]) // groups  # of an output and an input of one group
    return [batch, FactorMap({0: 1, weight: 0, **each}, {0: 1}, size=groups), window_loop([pairs])]


def _channels(info: OpInfo, outputs: int, inputs: int) -> list[FactorMap]:
    return channel_loops(info, outputs=outputs, inputs=inputs, can_sum=adds_up(info))


@sharding_rule("ConvInteger")
def integer_convolution(info: OpInfo) -> Rule:
    """Return the factors of Conv; parts of the sum add up, each less its own zero points.

    Padding holds the zero point of the input, so it adds nothing.
    """
    kernel, windows = info.shape(1)[2:], info.result_shape()[2:]
    channels = channel_loops(info, outputs=0, inputs=1, can_sum=True, per_channel=(3,))
    spatial = spatial_loops(info, kernel, windows, side="result")
    return _quantized(info, [*channels, *spatial, window_loop(kernel)])


@sharding_rule("QLinearConv")
def requantized_convolution(info: OpInfo) -> Rule:
    """Return the factors of Conv but the sum, which is rounded once."""
    kernel, windows = info.shape(3)[2:], info.result_shape()[2:]
    channels = channel_loops(
        info, outputs=0, inputs=1, can_sum=False, weight=3, per_channel=(4, 5, 8)
    )
    spatial = spatial_loops(info, kernel, windows, side="result")
    return _quantized(info, [*channels, *spatial, window_loop(kernel)])


@sharding_rule("com.microsoft.FusedConv")
def fused_convolution(info: OpInfo) -> Rule:
    """Return the factors of Conv but the sum, which is whole before its activation.

    Operand 3, of the shape of the result, is added before it.
    """
    channels = channel_loops(info, outputs=0, inputs=1, can_sum=False)
    factors = _slid(info, channels, info.shape(1)[2:])
    if info.operand(3) is not None:
        factors = [
            replace(factor, operands={**factor.operands, **_added(factor)}) for factor in factors
        ]
    inner = _exchanges(info, factors)
    return rule_of(info, factors, localize=_slide, flops_per_point=2.0, inner=inner)


def _added(factor: FactorMap) -> dict[int, int]:
    return {3: factor.results[0]} if 0 in factor.results else {}


@sharding_rule("DeformConv")
def deformed_convolution(info: OpInfo) -> Rule:
    """Return batch and channels of the result, and of the input where all move alike.

    Every window may reach anywhere, so space is whole. With several groups only the batch is
    split: those of the channels and of the offsets need not be the same.
    """
    kernel, bias = info.shape(1)[2:], _bias(info, 3)
    several, alike = info.attribute("group", 1) > 1, info.attribute("offset_group", 1) == 1
    factors = [
        present_factor(info, {0: 0, 2: 0, 4: 0}, {0: 0}),
        present_factor(info, {1: 0, 3: 0}, {0: 1}, can_split=not several),
        FactorMap(
            {} if several else {0: 1, 1: 1},
            size=info.shape(1)[1],
            reduction="sum",
            can_split=not several and alike and adds_up(info),
        ),
        *(FactorMap({}, {0: dim}, can_split=False) for dim in range(2, len(info.shape(0)))),
        window_loop(kernel),
    ]
    linear = linear_in(info, (0, *bias), (1, *bias))
    return rule_of(info, factors, linear=linear, additive=bias, flops_per_point=2.0)


def _quantized(info: OpInfo, factors: list[FactorMap]) -> Rule:
    return rule_of(info, factors, localize=_divide_groups, flops_per_point=2.0)


def _bias(info: OpInfo, index: int = 2) -> tuple[int, ...]:
    return (index,) if info.operand(index) is not None else ()


def _rule(
    info: OpInfo, factors: list[FactorMap], localize: Localize, inner: tuple[InnerStep, ...] = ()
) -> Rule:
    bias = _bias(info)
    linear = linear_in(info, (0, *bias), (1, *bias))
    return rule_of(
        info,
        factors,
        linear=linear,
        additive=bias,
        flops_per_point=2.0,
        localize=localize,
        inner=inner,
    )


def _divide_groups(local: LocalOp) -> list[ir.Value]:
    return local.clone(attributes=_groups(local))


def _slide(local: LocalOp) -> list[ir.Value]:
    operands, attributes = with_halo(local, 0)
    return local.clone(operands, {**attributes, **_groups(local)})


def _groups(local: LocalOp) -> dict[str, ir.Attribute]:
    """Return the attribute `group` of one rank; a single group is not what is split."""
    several = local.info.attribute("group", 1) > 1
    return local.divided(_CHANNELS, "group") if several else {}
