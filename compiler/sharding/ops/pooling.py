"""Pooling over windows and over all spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import Linear, Rule
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, kept_factors, linear_in, rule_of
from tensoropt.compiler.sharding.rule.halo import crossed, halos_of, inner_exchange, with_halo
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import Window, spatial_loops, window_loop
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "average_pooling",
    "global_average",
    "global_max",
    "global_norm",
    "max_pooling",
    "pooling",
    "quantized_average",
    "unpooling",
]


@sharding_rule("LpPool")
def pooling(info: OpInfo) -> Rule:
    """Return batch, channels and space; windows may reach into neighbouring parts."""
    return _slid(info, halos_of(info), _slide_over_zeros)


@sharding_rule("AveragePool")
def average_pooling(info: OpInfo) -> Rule:
    """Return the rule of any pooling; averages of partial sums add up."""
    known = [window for window in halos_of(info) if _is_counted(info, window)]
    return _slid(info, known, _average, linear_in(info, (0,)))


def _is_counted(info: OpInfo, window: Window) -> bool:
    """Say whether it is known what averages divide by: not beyond padding that is counted."""
    return window.reach <= window.end or not info.attribute("count_include_pad", 0)


@sharding_rule("com.microsoft.QLinearAveragePool", "com.microsoft.QLinearGlobalAveragePool")
def quantized_average(info: OpInfo) -> Rule | None:
    """Return batch and channels: averages are rounded. ``None`` where the channels are last."""
    if info.attribute("channels_last", 0):
        return None
    space = [FactorMap({}, {0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    window = window_loop(info.attribute("kernel_shape", info.sizes(0)[2:]))
    return rule_of(info, [*kept_factors(info, (0, 1)), *space, window], flops_per_point=1.0)


@sharding_rule("MaxPool")
def max_pooling(info: OpInfo) -> Rule | None:
    """Return the rule of any pooling.

    The second result counts elements from the start of the whole input: splitting the batch or the
    channels adds an offset to it, splitting space is not offered; nor is anything for a symbolic
    shape, whose offsets are not known.
    """
    if len(info.results) < 2 or info.results[1] is None:
        return _slid(info, halos_of(info), _slide_over_lowest)
    if None in info.shape(0) or info.version < BROADCAST_VERSION:
        return None
    spatial = [FactorMap({}, {0: d, 1: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    factors = [*kept_factors(info, (0, 1)), *spatial, _window(info)]
    return rule_of(info, factors, localize=_offset_indices, flops_per_point=1.0)


def _slid(
    info: OpInfo, halos: Sequence[Window], localize: Localize, linear: tuple[Linear, ...] = ()
) -> Rule:
    exact = bool(info.attribute("ceil_mode", 0))
    kernel, windows = info.attribute("kernel_shape"), info.result_shape()[2:]
    spatial = spatial_loops(info, kernel, windows, side="result", exact=exact, halos=halos)
    factors = [*kept_factors(info, (0, 1)), *spatial, _window(info)]
    inner = inner_exchange(info, factors, [window.halo for window in halos])
    return rule_of(
        info, factors, linear=linear, localize=localize, flops_per_point=1.0, inner=inner
    )


def _slide_over_zeros(local: LocalOp) -> list[ir.Value]:
    return local.clone(*with_halo(local, 0))


def _slide_over_lowest(local: LocalOp) -> list[ir.Value]:
    """Return the maxima; no element is below what stands for padding."""
    import numpy as np

    tensor = local.info.operand(0)
    assert tensor is not None
    whole = tensor.dtype in ("int8", "uint8")
    return local.clone(*with_halo(local, np.iinfo(tensor.dtype).min if whole else -math.inf))


def _average(local: LocalOp) -> list[ir.Value]:
    """Return averages; those over a halo count padding too, where the op may not."""
    make, values, shape = Arithmetic(local), _slide_over_zeros(local), local.info.shape(0)
    if local.info.attribute("count_include_pad", 0):
        return values
    for window in crossed(local):
        axes = local.strategy.operands[0].axes_splitting(window.dim)
        shares = _shares(window, shape[window.dim] or 0)
        others = [1] * (len(shape) - window.dim - 1)
        per_rank = shares.reshape(local.mesh.extent(axes), -1, *others)
        values = [make.mul(values[0], local.axis_constant(make.like(per_rank, values[0]), axes))]
    return values


def _shares(window: Window, size: int) -> npt.NDArray[np.float64]:
    """Return, per window along one dimension, by what its average is too small.

    That is all its elements over those that are not padding. Shape: (windows,).
    """
    import numpy as np

    starts = np.arange(size // window.stride) * window.stride - window.begin
    taps = starts[:, None] + np.arange(window.taps) * window.dilation
    own: npt.NDArray[np.int64] = ((taps >= 0) & (taps < size)).sum(axis=1)
    return window.taps / own


def _window(info: OpInfo) -> FactorMap:
    return window_loop(info.attribute("kernel_shape"))


def _offset_indices(local: LocalOp) -> list[ir.Value]:
    """Return the pooled values, and indices into the whole input in place of the local one."""
    values, indices = local.clone()
    axes = tuple(sorted(local.axes(0) + local.axes(1)))
    if not axes or 0 in local.info.shape(0):
        return [values, indices]
    offset = local.axis_constant(_index_offsets(local, axes, local.info.shape(0)), axes)
    return [values, local.onnx("Add", [indices, offset], indices.type)]


def _index_offsets(local: LocalOp, axes: tuple[int, ...], counted: Shape) -> npt.NDArray[np.int64]:
    """Return, per position along ``axes``, what to add to the indices of every image and channel.

    The indices count the elements of a tensor of shape ``counted``, of the rank's part or of the
    whole. Shape: positions x images x channels x 1... (int64).
    """
    import numpy as np

    shape = [size or 0 for size in counted]
    layout, mesh = local.strategy.operands[0], local.mesh
    starts = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape[:2])
    offsets = []
    for rank in mesh.group(0, axes):
        part = starts[layout.local_slices(shape[:2], mesh, rank)]
        offsets.append(part - np.arange(part.size).reshape(part.shape))
    stacked = np.stack(offsets) * math.prod(shape[2:])
    return stacked.reshape(*stacked.shape, *[1] * (len(shape) - 2))


@sharding_rule("MaxUnpool")
def unpooling(info: OpInfo) -> Rule | None:
    """Return batch and channels: the indices count elements of the whole result.

    ``None`` where its shape is given or not known, so that it may not be what they count.
    """
    if info.operand(2) is not None or None in info.result_shape():
        return None
    factors = [FactorMap({0: dim, 1: dim}, {0: dim}) for dim in (0, 1)]
    return rule_of(info, factors, localize=_localize_indices)


def _localize_indices(local: LocalOp) -> list[ir.Value]:
    axes = tuple(sorted(local.axes(0) + local.axes(1)))
    if not axes or 0 in local.info.result_shape():
        return local.clone()
    indices = local.operands[1]
    offset = local.axis_constant(_index_offsets(local, axes, local.info.result_shape()), axes)
    return local.clone({1: local.onnx("Sub", [indices, offset], indices.type)})


@sharding_rule("GlobalMaxPool")
def global_max(info: OpInfo) -> Rule:
    """Return batch and channels, and the spatial dimensions, which leave partial maxima."""
    spatial = [FactorMap({0: d}, reduction="max") for d in range(2, len(info.shape(0)))]
    return rule_of(info, [*kept_factors(info, (0, 1)), *spatial], flops_per_point=1.0)


@sharding_rule("GlobalAveragePool")
def global_average(info: OpInfo) -> Rule:
    """Return batch and channels, and the spatial dimensions, which leave partial sums.

    Each rank divides the average of its part by how many parts there are.
    """
    can_split = info.version >= BROADCAST_VERSION
    spatial = [
        FactorMap({0: d}, reduction="sum", can_split=can_split)
        for d in range(2, len(info.shape(0)))
    ]
    return rule_of(
        info,
        [*kept_factors(info, (0, 1)), *spatial],
        linear=linear_in(info, (0,)),
        localize=_divide_average,
        flops_per_point=1.0,
    )


def _divide_average(local: LocalOp) -> list[ir.Value]:
    (average,) = local.clone()
    spatial = range(2, len(local.info.shape(0)))
    pieces = math.prod(local.pieces(factor) for factor in spatial)
    return [average if pieces == 1 else Arithmetic(local).scaled(average, 1.0 / pieces)]


@sharding_rule("GlobalLpPool")
def global_norm(info: OpInfo) -> Rule:
    """Return batch and channels: a norm of norms is not offered."""
    spatial = [FactorMap({0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    return rule_of(info, [*kept_factors(info, (0, 1)), *spatial], flops_per_point=1.0)
