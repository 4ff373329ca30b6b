"""Pooling over windows and over all spatial dimensions."""

from __future__ import annotations

import math
from typing import Any

from tensoropt.compiler.sharding.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.local import LocalOp
from tensoropt.compiler.sharding.loops import Loop, kept_loops, linear_in, rule_of
from tensoropt.compiler.sharding.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import Rule
from tensoropt.compiler.sharding.windows import spatial_loops, window_loop

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
    """Return batch and channels, and the spatial dimensions that windows tile."""
    return rule_of(info, _pooling_loops(info), flops_per_point=1.0)


@sharding_rule("AveragePool")
def average_pooling(info: OpInfo) -> Rule:
    """Return the rule of any pooling; averages of partial sums add up."""
    return rule_of(info, _pooling_loops(info), linear=linear_in(info, (0,)), flops_per_point=1.0)


@sharding_rule("com.microsoft.QLinearAveragePool", "com.microsoft.QLinearGlobalAveragePool")
def quantized_average(info: OpInfo) -> Rule | None:
    """Return batch and channels: averages are rounded. ``None`` where the channels are last."""
    if info.attribute("channels_last", 0):
        return None
    space = [Loop({}, {0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    window = window_loop(info.attribute("kernel_shape", info.shape(0)[2:]))
    return rule_of(info, [*kept_loops(info, (0, 1)), *space, window], flops_per_point=1.0)


@sharding_rule("MaxPool")
def max_pooling(info: OpInfo) -> Rule | None:
    """Return the rule of any pooling.

    The second result counts elements from the start of the whole input: splitting the batch or the
    channels adds an offset to it, splitting space is not offered; nor is anything for a symbolic
    shape, whose offsets are not known.
    """
    if len(info.results) < 2 or info.results[1] is None:
        return rule_of(info, _pooling_loops(info), flops_per_point=1.0)
    if None in info.shape(0) or info.version < BROADCAST_VERSION:
        return None
    spatial = [Loop({}, {0: d, 1: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    loops = [*kept_loops(info, (0, 1)), *spatial, _window(info)]
    return rule_of(info, loops, localize=_offset_indices, flops_per_point=1.0)


def _pooling_loops(info: OpInfo) -> list[Loop]:
    exact = bool(info.attribute("ceil_mode", 0))
    kernel, windows = info.attribute("kernel_shape"), info.result_shape()[2:]
    spatial = spatial_loops(info, kernel, windows, side="result", exact=exact)
    return [*kept_loops(info, (0, 1)), *spatial, _window(info)]


def _window(info: OpInfo) -> Loop:
    return window_loop(info.attribute("kernel_shape"))


def _offset_indices(local: LocalOp) -> list[Any]:
    """Return the pooled values, and indices into the whole input in place of the local one."""
    values, indices = local.clone()
    axes = tuple(sorted(local.axes(0) + local.axes(1)))
    if not axes:
        return [values, indices]
    offset = local.axis_constant(_index_offsets(local, axes, local.info.shape(0)), axes)
    return [values, local.onnx("Add", [indices, offset], indices.type)]


def _index_offsets(local: LocalOp, axes: tuple[int, ...], counted: Shape) -> Any:
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
    loops = [Loop({0: dim, 1: dim}, {0: dim}) for dim in (0, 1)]
    return rule_of(info, loops, localize=_localize_indices)


def _localize_indices(local: LocalOp) -> list[Any]:
    axes = tuple(sorted(local.axes(0) + local.axes(1)))
    if not axes:
        return local.clone()
    indices = local.operands[1]
    offset = local.axis_constant(_index_offsets(local, axes, local.info.result_shape()), axes)
    return local.clone({1: local.onnx("Sub", [indices, offset], indices.type)})


@sharding_rule("GlobalMaxPool")
def global_max(info: OpInfo) -> Rule:
    """Return batch and channels, and the spatial dimensions, which leave partial maxima."""
    spatial = [Loop({0: d}, reduction="max") for d in range(2, len(info.shape(0)))]
    return rule_of(info, [*kept_loops(info, (0, 1)), *spatial], flops_per_point=1.0)


@sharding_rule("GlobalAveragePool")
def global_average(info: OpInfo) -> Rule:
    """Return batch and channels, and the spatial dimensions, which leave partial sums.

    Each rank divides the average of its part by how many parts there are.
    """
    can_split = info.version >= BROADCAST_VERSION
    spatial = [
        Loop({0: d}, reduction="sum", can_split=can_split) for d in range(2, len(info.shape(0)))
    ]
    return rule_of(
        info,
        [*kept_loops(info, (0, 1)), *spatial],
        linear=linear_in(info, (0,)),
        localize=_divide_average,
        flops_per_point=1.0,
    )


def _divide_average(local: LocalOp) -> list[Any]:
    (average,) = local.clone()
    spatial = range(2, len(local.info.shape(0)))
    pieces = math.prod(local.pieces(factor) for factor in spatial)
    return [average if pieces == 1 else Arithmetic(local).scaled(average, 1.0 / pieces)]


@sharding_rule("GlobalLpPool")
def global_norm(info: OpInfo) -> Rule:
    """Return batch and channels: a norm of norms is not offered."""
    spatial = [Loop({0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    return rule_of(info, [*kept_loops(info, (0, 1)), *spatial], flops_per_point=1.0)
