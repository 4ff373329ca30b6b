"""Convolutions over any number of spatial dimensions, with groups, and their transposes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tensoropt.compiler.layout.rule import Filled, InnerStep, Minor, Rule, Sections
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.blocks import MOST_BLOCKS
from tensoropt.compiler.sharding.rule.factors import (
    FactorMap,
    adds_up,
    aligned,
    linear_in,
    present_factor,
    rule_of,
)
from tensoropt.compiler.sharding.rule.halo import (
    add_halo,
    can_exchange,
    halos_of,
    inner_exchange,
    widen,
)
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import (
    Halo,
    Window,
    count,
    even_padding,
    spatial_loops,
    tap_halo,
    window_loop,
    windows_back_of,
    windows_of,
)
from tensoropt.dialects.build import ints_attr, sizes_of, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import SLICE_OPERANDS_SINCE

__all__ = [
    "channel_loops",
    "convolution",
    "deformed_convolution",
    "fused_convolution",
    "group_blocks",
    "integer_convolution",
    "merged_channels",
    "requantized_convolution",
    "transposed_convolution",
]

# Indices of factors: the channels, split by the groups of the attribute `group`; the summed inputs
# of a group; its outputs.
_CHANNELS = 1
_INPUTS = 2
_OUTPUTS = 3


@sharding_rule("Conv")
def convolution(info: OpInfo) -> Rule:
    """Return the rule `n c i, m c k, m -> n m o`; several groups are split as wholes, or within.

    If the window is as large as the image, as in the gradient of a weight, both can be split along
    the same dimension, which leaves partial sums.
    """
    taps = _tap_halos(info)
    factors = _sliding_factors(info, _channels(info, 0, 1), info.shape(1)[2:], taps)
    inner = (*_gather_steps(info, factors), *_exchanges(info, factors, taps))
    return _rule(info, factors, Filled(_localize_sliding), inner)


@sharding_rule("ConvTranspose")
def transposed_convolution(info: OpInfo) -> Rule:
    """Return the rule `n c i, c m k, m -> n m o`; each input element is one window of the result.

    Windows may reach into neighbouring parts of the result; these parts then read input elements of
    their neighbours.
    """
    kernel, windows = info.shape(1)[2:], info.shape(0)[2:]
    if info.attribute("output_shape") or any(info.attribute("output_padding", ())):
        spatial = [FactorMap({0: dim + 2}, can_split=False) for dim in range(len(kernel))]
    else:
        spatial = spatial_loops(info, kernel, windows, side="operand", exact=True)
    spread = _spread_windows(info)
    for window in spread:
        size, least = windows[window.dim - 2], max(window.halo_back.reach, 1)
        own = FactorMap({0: window.dim}, {0: window.dim}, size=size, least=least)
        spatial[window.dim - 2] = own
    factors = [*_channels(info, 1, 0), *spatial, window_loop(kernel)]
    exchanges = inner_exchange(info, factors, [window.halo_back for window in spread])
    return _rule(
        info, factors, Filled(_localize_spread), (*exchanges, *_crops(info, factors, spread))
    )


def _spread_windows(info: OpInfo) -> list[Window]:
    """Return the windows in the result of a ConvTranspose along which parts can be split.

    The stride equals the elements per window, so that windows have the same position in every part.
    """
    counted = info.attribute("output_shape") or str(info.attribute("auto_pad")).startswith("SAME")
    if counted or not can_exchange(info) or info.standard_version < SLICE_OPERANDS_SINCE:
        return []
    sizes, made = info.shape(0), info.result_shape()
    return [
        window
        for window in windows_back_of(info)
        if (count := sizes[window.dim]) is not None
        and made[window.dim] == count * window.stride
        and min(window.taps, window.begin + 1) > 0
    ]


def _ends(window: Window) -> tuple[int, int, int, int]:
    """Return padding, output padding, and crops in front and after, for a part with halo."""
    halo = window.halo_back
    begin = halo.before * window.stride + window.begin
    end = (halo.after - 1) * window.stride + window.extent - window.begin
    return even_padding(begin, end, window.stride)


def _crops(
    info: OpInfo, factors: Sequence[FactorMap], spread: Sequence[Window]
) -> tuple[InnerStep, ...]:
    """Return the copies of the results that are cropped."""
    made = info.results[0]
    assert made is not None
    channels = () if info.attribute("group", 1) == 1 else (_OUTPUTS,)
    along = tuple(n for n, factor in enumerate(factors) if 0 in factor.results or n in channels)
    points = count([factors[index].factor(info).size for index in along])
    each = made.elements * made.item_bytes // points
    split = {factor.operands.get(0): index for index, factor in enumerate(factors)}
    return tuple(
        InnerStep((split[window.dim],), along, each, "copy")
        for window in spread
        if any(_ends(window)[2:])
    )


def _sliding_factors(
    info: OpInfo, channels: list[FactorMap], kernel: Shape, taps: Sequence[Halo] = ()
) -> list[FactorMap]:
    """Return the factors of a convolution with windows that may reach into neighbouring parts.

    Along the dimensions of ``taps``, the windows are split too.
    """
    summed = []
    for halo in taps:
        size, gap = info.shape(1)[halo.dim] or 1, info.shape(0)[halo.dim] or 1
        # A part of the image must be as long as the elements that its neighbours read from it.
        least = max(-(-halo.reach * size // gap), 1)
        places = {0: halo.dim, 1: halo.dim}
        summed.append(FactorMap(places, size=size, reduction="sum", least=least))
    cut = {halo.dim for halo in taps}
    whole = [size for dim, size in enumerate(kernel, 2) if dim not in cut]
    return [*channels, *_spatial_loops(info, kernel), *summed, window_loop(whole)]


def _spatial_loops(info: OpInfo, kernel: Shape) -> list[FactorMap]:
    windows = info.result_shape()[2:]
    return spatial_loops(info, kernel, windows, side="result", halos=halos_of(info))


def _tap_halos(info: OpInfo) -> list[Halo]:
    """Return the halos of the dimensions along which image and window can be split together."""
    old = info.standard_version < SLICE_OPERANDS_SINCE
    if old or not adds_up(info) or not can_exchange(info):
        return []
    loops = _spatial_loops(info, info.shape(1)[2:])
    whole = [dim for dim, loop in enumerate(loops, 2) if 0 not in loop.operands]
    halos = [tap_halo(info, window) for window in windows_of(info) if window.dim in whole]
    return [halo for halo in halos if halo is not None]


def _exchanges(
    info: OpInfo, factors: list[FactorMap], taps: Sequence[Halo] = ()
) -> tuple[InnerStep, ...]:
    halos = [window.halo for window in halos_of(info)]
    return inner_exchange(info, factors, [*halos, *taps])


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

    ``outputs`` and ``inputs`` are the dimensions of operand ``weight`` along the output and input
    channels. With several groups, the channels are merged with the groups, and can be split into as
    many parts as there are groups. The outputs of each group can be split further
    (:func:`merged_channels`). If ``inputs`` counts the inputs of a group, these can be split too,
    identically in all groups: a rank gathers the inputs for its weights. Operands in
    ``per_channel`` have one element per channel of the result, or one for all. All factors may be
    padded, groups if each of them is one channel.
    """
    batch = FactorMap({0: 0}, {0: 0}, padded=True)
    each = aligned(info, *per_channel, dim=0, rank=1)
    groups = int(info.attribute("group", 1))
    if groups == 1:
        places = {0: 1, weight: inputs}
        reduced = FactorMap(places, reduction="sum", can_split=can_sum, padded=True)
        return [batch, FactorMap({weight: outputs, **each}, {0: 1}, padded=True), reduced]
    channels = info.shape(0)[1], info.shape(weight)[0], info.result_shape()[1]
    alone = channels == (groups, groups, groups)  # parts of groups and of channels agree
    grouped = FactorMap({0: 1, weight: 0, **each}, {0: 1}, size=groups, padded=alone)
    made = info.shape(weight)[0]
    if inputs == 0:
        summed = FactorMap({}, size=count([made]) // groups, reduction="sum", can_split=can_sum)
        return [batch, grouped, summed, FactorMap({weight: 1})]
    summed = FactorMap(
        {weight: inputs}, reduction="sum", can_split=can_sum, counted=True, padded=True
    )
    return [batch, grouped, summed, FactorMap({}, size=count([made]) // groups)]


def merged_channels(
    info: OpInfo, *, weight: int = 1, per_channel: Sequence[int] = (2,), added: Sequence[int] = ()
) -> tuple[Minor, ...]:
    """Return (tensor, dimension, minor factor) of dimensions that merge groups and their channels.

    The operands ``added`` have the shape of the result.
    """
    groups, channels = int(info.attribute("group", 1)), info.result_shape()[1] or 0
    if groups == 1:
        return ()
    made = {**aligned(info, *per_channel, dim=0, rank=1), **dict.fromkeys(added, 1)}
    made[len(info.operands)] = 1
    if info.name != "ConvTranspose":
        made[weight] = 0
    outputs = [(*place, _OUTPUTS) for place in made.items()] if channels > groups else []
    if info.name != "ConvTranspose" or (info.shape(0)[1] or 0) == groups:
        return tuple(outputs)
    return (*outputs, (0, 1, _INPUTS), (weight, 0, _INPUTS))


def group_blocks(info: OpInfo, minors: Iterable[Minor]) -> Sections:
    """Return the blocks of the dimensions in ``minors``: one for each group, unless too many."""
    groups = int(info.attribute("group", 1))
    fits = groups <= MOST_BLOCKS
    return tuple(sorted((t, dim, (1,) * groups) for t, dim, _ in minors)) if fits else ()


def _channels(info: OpInfo, outputs: int, inputs: int) -> list[FactorMap]:
    return channel_loops(info, outputs=outputs, inputs=inputs, can_sum=adds_up(info))


@sharding_rule("ConvInteger")
def integer_convolution(info: OpInfo) -> Rule:
    """Return the factors of Conv; partial sums add up, each less its own zero points.

    Padding contains the zero point of the input, so it adds nothing.
    """
    kernel, windows = info.shape(1)[2:], info.result_shape()[2:]
    channels = channel_loops(info, outputs=0, inputs=1, can_sum=True, per_channel=(3,))
    spatial = spatial_loops(info, kernel, windows, side="result")
    factors, minors = (
        [*channels, *spatial, window_loop(kernel)],
        merged_channels(info, per_channel=(3,)),
    )
    return _quantized(info, factors, minors, _gather_steps(info, factors))


@sharding_rule("QLinearConv")
def requantized_convolution(info: OpInfo) -> Rule:
    """Return the factors of Conv; the sum stays whole because it is rounded once."""
    kernel, windows = info.shape(3)[2:], info.result_shape()[2:]
    channels = channel_loops(
        info, outputs=0, inputs=1, can_sum=False, weight=3, per_channel=(4, 5, 8)
    )
    spatial = spatial_loops(info, kernel, windows, side="result")
    minors = merged_channels(info, weight=3, per_channel=(4, 5, 8))
    return _quantized(info, [*channels, *spatial, window_loop(kernel)], minors)


@sharding_rule("com.microsoft.FusedConv")
def fused_convolution(info: OpInfo) -> Rule:
    """Return the factors of Conv; the sum stays whole because an activation follows.

    Operand 3, of the shape of the result, is added before the activation.
    """
    channels = channel_loops(info, outputs=0, inputs=1, can_sum=False)
    factors = _sliding_factors(info, channels, info.shape(1)[2:])
    if info.operand(3) is not None:
        factors = [
            replace(factor, operands={**factor.operands, 3: factor.results[0]})
            if 0 in factor.results
            else factor
            for factor in factors
        ]
    minors = merged_channels(info, added=() if info.operand(3) is None else (3,))
    return rule_of(
        info,
        factors,
        localize=Filled(_localize_sliding),
        flops_per_point=2.0,
        inner=_exchanges(info, factors),
        minors=minors,
        sections=group_blocks(info, minors),
    )


@sharding_rule("DeformConv")
def deformed_convolution(info: OpInfo) -> Rule:
    """Split batch and output channels, and the input channels if they share their offsets.

    A window may read anywhere, so spatial dimensions stay whole. With several groups, only the
    batch is split, because the groups of channels and of offsets can differ.
    """
    kernel, bias = info.shape(1)[2:], _bias(info, 3)
    several, shared = info.attribute("group", 1) > 1, info.attribute("offset_group", 1) == 1
    factors = [
        present_factor(info, {0: 0, 2: 0, 4: 0}, {0: 0}),
        present_factor(info, {1: 0, 3: 0}, {0: 1}, can_split=not several),
        FactorMap(
            {} if several else {0: 1, 1: 1},
            size=info.shape(1)[1],
            reduction="sum",
            can_split=not several and shared and adds_up(info),
        ),
        *(FactorMap({}, {0: dim}, can_split=False) for dim in range(2, len(info.shape(0)))),
        window_loop(kernel),
    ]
    linear = linear_in(info, (0, *bias), (1, *bias))
    return rule_of(info, factors, linear=linear, additive=bias, flops_per_point=2.0)


def _quantized(
    info: OpInfo,
    factors: list[FactorMap],
    minors: tuple[Minor, ...],
    inner: tuple[InnerStep, ...] = (),
) -> Rule:
    return rule_of(
        info,
        factors,
        localize=Filled(_divide_groups),
        flops_per_point=2.0,
        inner=inner,
        minors=minors,
        sections=group_blocks(info, minors),
    )


def _bias(info: OpInfo, index: int = 2) -> tuple[int, ...]:
    return (index,) if info.operand(index) is not None else ()


def _rule(
    info: OpInfo, factors: list[FactorMap], localize: Localize, inner: tuple[InnerStep, ...] = ()
) -> Rule:
    bias = _bias(info)
    linear = linear_in(info, (0, *bias), (1, *bias))
    minors = merged_channels(info)
    return rule_of(
        info,
        factors,
        linear=linear,
        additive=bias,
        flops_per_point=2.0,
        localize=localize,
        inner=inner,
        minors=minors,
        sections=group_blocks(info, minors),
    )


def _gather_steps(info: OpInfo, factors: Sequence[FactorMap]) -> tuple[InnerStep, ...]:
    """Return the inner step in which a rank gathers its inputs of each group: a copy of them."""
    tensor = info.operand(0)
    if tensor is None or not _gathers_inputs(info):
        return ()
    along = [index for index, factor in enumerate(factors) if 0 in factor.operands]
    points = (*along, _INPUTS)
    size = count([factors[index].factor(info).size for index in points])
    each = tensor.elements * tensor.item_bytes // max(size, 1)
    return (InnerStep((_INPUTS,), points, each, "copy"),)


def _gathers_inputs(info: OpInfo) -> bool:
    """Return whether the inputs of all groups can be split; they are not contiguous."""
    return int(info.attribute("group", 1)) > 1 and info.name != "ConvTranspose"


def _gather_inputs(local: LocalOp) -> None:
    """Reduce the image to the inputs of each group for which the rank has weights.

    Weights in padding are zeros; they multiply the last input of the group.
    """
    import numpy as np

    axes = local.axes(_INPUTS) if _gathers_inputs(local.info) else ()
    if not axes:
        return
    pieces, part = local.pieces(_INPUTS), local.part(_INPUTS)
    groups = np.arange(local.part(_CHANNELS))[:, None, None]
    last = (local.info.shape(1)[1] or 0) - 1
    own = np.minimum(np.arange(pieces * part), last).reshape(pieces, part)
    places = groups * (last + 1) + own
    mine = local.axis_constant(np.moveaxis(places, 1, 0).reshape(pieces, -1), axes)
    local.operands[0] = Arithmetic(local).take(local.operands[0], mine, 1)


def _divide_groups(local: LocalOp) -> list[ir.Value]:
    _gather_inputs(local)
    return local.clone(attributes=_groups(local))


def _localize_sliding(local: LocalOp) -> list[ir.Value]:
    _gather_inputs(local)
    weight = local.strategy.operands[1]
    taps = [halo for halo in _tap_halos(local.info) if weight.axes_splitting(halo.dim)]
    operands, attributes = add_halo(local, 0, taps)
    if taps and local.info.attribute("kernel_shape"):
        attributes["kernel_shape"] = ints_attr(sizes_of(local.operands[1])[2:])
    return local.clone(operands, {**attributes, **_groups(local)})


def _localize_spread(local: LocalOp) -> list[ir.Value]:
    """Return the windows over which a part with halo spreads, cropped to the rank's own part."""
    layout = local.strategy.operands[0]
    cut = [w for w in _spread_windows(local.info) if layout.axes_splitting(w.dim)]
    if not cut:
        return _divide_groups(local)
    ends = {window.dim: _ends(window) for window in cut}
    kind = ir.RankedTensorType(local.result_types[0])
    sizes = [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
    made = [
        size if size is None or dim not in ends else size + sum(ends[dim][2:])
        for dim, size in enumerate(sizes)
    ]
    x = widen(local, [window.halo_back for window in cut], 0)
    attributes = {**_padding(local.info, ends), **_groups(local)}
    (y,) = local.clone({0: x}, attributes, [tensor_type(made, kind.element_type)])
    for dim, (*_, front, back) in ends.items():
        if front + back:
            y = Arithmetic(local).slice(y, dim, front, front + (sizes[dim] or 0))
    return [y]


def _padding(
    info: OpInfo, ends: Mapping[int, tuple[int, int, int, int]]
) -> dict[str, ir.Attribute]:
    """Return the padding attributes of a ConvTranspose, with the entries of ``ends`` replaced."""
    rank = len(info.shape(0)) - 2
    pads = list(info.attribute("pads", ())) or [0] * 2 * rank
    extras = list(info.attribute("output_padding", ())) or [0] * rank
    for dim, (padding, extra, _, _) in ends.items():
        pads[dim - 2] = pads[rank + dim - 2] = padding
        extras[dim - 2] = extra
    return {
        "auto_pad": ir.StringAttr.get("NOTSET"),
        "pads": ints_attr(pads),
        "output_padding": ints_attr(extras),
    }


def _groups(local: LocalOp) -> dict[str, ir.Attribute]:
    """Return the attribute `group` of one rank; empty for a single group, which is not split."""
    several = local.info.attribute("group", 1) > 1
    return local.divide_attributes(_CHANNELS, "group") if several else {}
