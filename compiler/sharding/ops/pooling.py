"""Pooling over windows and over all spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import InnerStep, Linear, Rule
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, kept_factors, linear_in, rule_of
from tensoropt.compiler.sharding.rule.halo import crossed, halos_of, inner_exchange, with_halo
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import Window, spatial_loops, window_loop
from tensoropt.dialects.build import sizes_of
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

_INDEX_BYTES = 8


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

    The second result counts elements from the start of the whole input, so what a rank counts is
    counted anew; nothing is offered for a symbolic shape, of which that is not known, nor space
    where columns are counted first.
    """
    if len(info.results) < 2 or info.results[1] is None:
        return _slid(info, halos_of(info), _slide_over_lowest)
    if None in info.shape(0) or info.version < BROADCAST_VERSION:
        return None
    halos = halos_of(info)
    loops = _loops(info, halos)
    by_column = bool(info.attribute("storage_order", 0))
    factors = [
        _with_indices(loop, can_split=dim < 2 or not by_column) for dim, loop in enumerate(loops)
    ]
    inner = inner_exchange(info, factors, [window.halo for window in halos])
    recounted = _recounting(info, factors)
    return rule_of(
        info, factors, localize=_count_anew, flops_per_point=1.0, inner=(*inner, *recounted)
    )


def _with_indices(loop: FactorMap, *, can_split: bool) -> FactorMap:
    """Return a loop of the first result as one of both."""
    results = dict.fromkeys((0, 1), loop.results[0]) if loop.results else {}
    return replace(loop, results=results, can_split=loop.can_split and can_split, padded=None)


def _recounting(info: OpInfo, factors: Sequence[FactorMap]) -> tuple[InnerStep, ...]:
    """Return what it costs to count anew along a dimension that is not the major one of space: a
    quotient, a product and a sum of indices."""
    points = tuple(range(len(info.result_shape())))
    return tuple(
        InnerStep((dim,), points, _INDEX_BYTES, "copy")
        for dim in points[3:]
        if factors[dim].can_split
        for _ in range(3)
    )


def _loops(info: OpInfo, halos: Sequence[Window]) -> list[FactorMap]:
    """Return the factors of any pooling: over each dimension of the result, and over a window."""
    exact = bool(info.attribute("ceil_mode", 0))
    kernel, windows = info.attribute("kernel_shape"), info.result_shape()[2:]
    spatial = spatial_loops(info, kernel, windows, side="result", exact=exact, halos=halos)
    return [*kept_factors(info, (0, 1), padded=True), *spatial, _window(info)]


def _slid(
    info: OpInfo, halos: Sequence[Window], localize: Localize, linear: tuple[Linear, ...] = ()
) -> Rule:
    factors = _loops(info, halos)
    inner = inner_exchange(info, factors, [window.halo for window in halos])
    return rule_of(
        info, factors, linear=linear, localize=localize, flops_per_point=1.0, inner=inner
    )


def _slide_over_zeros(local: LocalOp) -> list[ir.Value]:
    return local.clone(*with_halo(local, 0))


def _slide_over_lowest(local: LocalOp) -> list[ir.Value]:
    """Return the maxima."""
    return local.clone(*_over_lowest(local))


def _over_lowest(local: LocalOp) -> tuple[dict[int, ir.Value], dict[str, ir.Attribute]]:
    """Return what `with_halo` does; no element is below what stands for padding."""
    import numpy as np

    tensor = local.info.operand(0)
    assert tensor is not None
    whole = tensor.dtype in ("int8", "uint8")
    return with_halo(local, np.iinfo(tensor.dtype).min if whole else -math.inf)


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


def _count_anew(local: LocalOp) -> list[ir.Value]:
    """Return the maxima, and their places counted from the start of the whole input.

    A rank counts within its part and the edges of its neighbours. The places go from the sizes of
    that to those of the whole, the minor dimension first.
    """
    layout, whole = local.strategy.operands[0], [size or 0 for size in local.info.shape(0)]
    axes = tuple(axis for axis, own in enumerate(layout.placements) if own.is_split)
    before = {window.dim: max(window.begin, 0) for window in crossed(local)}
    changed = _over_lowest(local)
    values, places = local.clone(*changed)
    if not axes or 0 in whole:
        return [values, places]
    make, held = Arithmetic(local), sizes_of(changed[0].get(0, local.operands[0]))
    for dim in reversed(range(3, len(whole))):
        below = math.prod(whole[dim + 1 :])
        if held[dim] != whole[dim]:
            rows = make.div(places, make.scalar(held[dim] * below, places))
            more = make.scalar((whole[dim] - held[dim]) * below, places)
            places = make.add(places, make.mul(rows, more))
    plane = math.prod([held[2], *whole[3:]])
    offset = local.axis_constant(_index_offsets(local, axes, whole, plane, before), axes)
    return [values, make.add(places, offset)]


def _index_offsets(
    local: LocalOp,
    axes: tuple[int, ...],
    counted: Sequence[int],
    plane: int,
    before: Mapping[int, int],
) -> npt.NDArray[np.int64]:
    """Return, per position along ``axes``, what to add to the indices of every image and channel.

    The indices count the elements of a tensor of shape ``counted``, of the rank's part or of the
    whole. In a part there are ``plane`` of them in a channel, and ``before`` what is the rank's own
    there are so many along a dimension. Shape: positions x images x channels x 1... (int64).
    """
    import numpy as np

    starts = np.arange(counted[0] * counted[1], dtype=np.int64).reshape(counted[:2])
    layout, mesh = local.strategy.operands[0], local.mesh
    offsets = []
    for rank in mesh.group(0, axes):
        slices = layout.local_slices(counted, mesh, rank)
        corner = sum(
            (own.start - before.get(dim, 0)) * math.prod(counted[dim + 1 :])
            for dim, own in enumerate(slices[2:], 2)
        )
        part = starts[slices[:2]]
        own_starts = np.arange(part.size).reshape(part.shape) * plane
        offsets.append(part * math.prod(counted[2:]) - own_starts + corner)
    stacked = np.stack(offsets)
    return stacked.reshape(*stacked.shape, *[1] * (len(counted) - 2))


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
    indices, counted = local.operands[1], [size or 0 for size in local.info.result_shape()]
    offsets = _index_offsets(local, axes, counted, math.prod(counted[2:]), {})
    offset = local.axis_constant(offsets, axes)
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
        [*kept_factors(info, (0, 1), padded=True), *spatial],
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
