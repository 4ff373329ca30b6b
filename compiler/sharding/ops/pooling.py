"""Pooling over windows and over all spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import InnerStep, Linear, Rule
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, kept_factors, linear_in, rule_of
from tensoropt.compiler.sharding.rule.halo import add_halo, cut_windows, halos_of, inner_exchange
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
    """Split batch, channels, and spatial dimensions; windows may reach into neighbouring parts."""
    return _sliding_rule(info, halos_of(info), _slide_over_zeros)


@sharding_rule("AveragePool")
def average_pooling(info: OpInfo) -> Rule:
    """Return the pooling rule; averages of partial sums add up."""
    # The divisor of an average is known if the windows end within padding that it counts.
    counts_all = bool(info.attribute("count_include_pad", 0))
    known = [w for w in halos_of(info) if w.reach <= w.end or not counts_all]
    return _sliding_rule(info, known, _average, linear_in(info, (0,)))


@sharding_rule("com.microsoft.QLinearAveragePool", "com.microsoft.QLinearGlobalAveragePool")
def quantized_average(info: OpInfo) -> Rule | None:
    """Split batch and channels; averages are rounded. ``None`` if the channels are last."""
    if info.attribute("channels_last", 0):
        return None
    space = [FactorMap({}, {0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    window = window_loop(info.attribute("kernel_shape", info.sizes(0)[2:]))
    return rule_of(info, [*kept_factors(info, (0, 1)), *space, window], flops_per_point=1.0)


@sharding_rule("MaxPool")
def max_pooling(info: OpInfo) -> Rule | None:
    """Return the pooling rule.

    The second result has indices into the whole input, so a rank must convert its local indices.
    The rule is ``None`` for a symbolic shape, as its offsets are unknown. Spatial dimensions stay
    whole if indices are column-major.
    """
    if len(info.results) < 2 or info.results[1] is None:
        return _sliding_rule(info, halos_of(info), _slide_over_lowest)
    if None in info.shape(0) or info.version < BROADCAST_VERSION:
        return None
    # The least integer fills edges and may be an element too, which then has the index of an edge.
    halos = () if _is_integer(info) else halos_of(info)
    loops = _loops(info, halos)
    by_column = bool(info.attribute("storage_order", 0))
    factors = [
        replace(
            loop,
            results=dict.fromkeys((0, 1), loop.results[0]) if loop.results else {},
            can_split=loop.can_split and (dim < 2 or not by_column),
            padded=None,
        )
        for dim, loop in enumerate(loops)
    ]
    inner = inner_exchange(info, factors, [window.halo for window in halos])
    recounted = _recounting(info, factors)
    return rule_of(
        info, factors, localize=_localize_maxima, flops_per_point=1.0, inner=(*inner, *recounted)
    )


def _is_integer(info: OpInfo) -> bool:
    tensor = info.operand(0)
    return tensor is not None and "int" in tensor.dtype


def _recounting(info: OpInfo, factors: Sequence[FactorMap]) -> tuple[InnerStep, ...]:
    """Return the cost of converting indices along a spatial dimension other than the major one.

    The conversion is a quotient, a product, and a sum of indices.
    """
    points = tuple(range(len(info.result_shape())))
    return tuple(
        InnerStep((dim,), points, _INDEX_BYTES, "copy")
        for dim in points[3:]
        if factors[dim].can_split
        for _ in range(3)
    )


def _loops(info: OpInfo, halos: Sequence[Window]) -> list[FactorMap]:
    """Return the factors of a pool: over each dimension of the result, and over a window."""
    exact = bool(info.attribute("ceil_mode", 0))
    kernel, windows = info.attribute("kernel_shape"), info.result_shape()[2:]
    spatial = spatial_loops(info, kernel, windows, side="result", exact=exact, halos=halos)
    return [*kept_factors(info, (0, 1), padded=True), *spatial, window_loop(kernel)]


def _sliding_rule(
    info: OpInfo, halos: Sequence[Window], localize: Localize, linear: tuple[Linear, ...] = ()
) -> Rule:
    factors = _loops(info, halos)
    inner = inner_exchange(info, factors, [window.halo for window in halos])
    return rule_of(
        info, factors, linear=linear, localize=localize, flops_per_point=1.0, inner=inner
    )


def _slide_over_zeros(local: LocalOp) -> list[ir.Value]:
    return local.clone(*add_halo(local, 0))


def _slide_over_lowest(local: LocalOp) -> list[ir.Value]:
    """Return the maxima."""
    return local.clone(*_over_lowest(local))


def _over_lowest(local: LocalOp) -> tuple[dict[int, ir.Value], dict[str, ir.Attribute]]:
    """Return the result of `add_halo` with the lowest value as padding."""
    import numpy as np

    tensor = local.info.operand(0)
    assert tensor is not None
    whole = tensor.dtype in ("int8", "uint8")
    return add_halo(local, np.iinfo(tensor.dtype).min if whole else -math.inf)


def _average(local: LocalOp) -> list[ir.Value]:
    """Return the averages, corrected for padding that a halo counts and the op does not."""
    make, values, shape = Arithmetic(local), _slide_over_zeros(local), local.info.shape(0)
    if local.info.attribute("count_include_pad", 0):
        return values
    for window in cut_windows(local):
        axes = local.strategy.operands[0].axes_splitting(window.dim)
        shares = _shares(window, shape[window.dim] or 0)
        others = [1] * (len(shape) - window.dim - 1)
        per_rank = shares.reshape(local.mesh.extent(axes), -1, *others)
        values = [make.mul(values[0], local.axis_constant(make.like(per_rank, values[0]), axes))]
    return values


def _shares(window: Window, size: int) -> npt.NDArray[np.float64]:
    """Return the factor by which the average of each window along one dimension is too small.

    It is the number of elements of the window divided by the number outside padding. Shape:
    (windows,).
    """
    import numpy as np

    starts = np.arange(size // window.stride) * window.stride - window.begin
    taps = starts[:, None] + np.arange(window.taps) * window.dilation
    own: npt.NDArray[np.int64] = ((taps >= 0) & (taps < size)).sum(axis=1)
    return window.taps / own


def _localize_maxima(local: LocalOp) -> list[ir.Value]:
    """Return the maxima and their indices into the whole input.

    The local op returns indices into the rank's part extended by its halo. They are converted from
    these sizes to the sizes of the whole, the minor dimension first.
    """
    layout, whole = local.strategy.operands[0], [size or 0 for size in local.info.shape(0)]
    axes = tuple(axis for axis, own in enumerate(layout.placements) if own.is_split)
    before = {window.dim: max(window.begin, 0) for window in cut_windows(local)}
    changed = _over_lowest(local)
    values, places = local.clone(*changed)
    if not axes or 0 in whole:
        return [values, places]
    make, sizes = Arithmetic(local), sizes_of(changed[0].get(0, local.operands[0]))
    for dim in reversed(range(3, len(whole))):
        below = math.prod(whole[dim + 1 :])
        if sizes[dim] != whole[dim]:
            rows = make.div(places, make.scalar(sizes[dim] * below, places))
            more = make.scalar((whole[dim] - sizes[dim]) * below, places)
            places = make.add(places, make.mul(rows, more))
    plane = math.prod([sizes[2], *whole[3:]])
    offset = local.axis_constant(_index_offsets(local, axes, whole, plane, before), axes)
    return [values, make.add(places, offset)]


def _index_offsets(
    local: LocalOp,
    axes: tuple[int, ...],
    counted: Sequence[int],
    plane: int,
    before: Mapping[int, int],
) -> npt.NDArray[np.int64]:
    """Return, per position along ``axes``, the offset of the indices of every image and channel.

    The indices count elements of a tensor of shape ``counted``: the rank's part, or the whole. A
    channel of the part has ``plane`` elements; ``before`` maps a dimension to the number of halo
    elements before the part. Shape: positions x images x channels x 1... (int64).
    """
    import numpy as np

    starts = np.arange(counted[0] * counted[1], dtype=np.int64).reshape(counted[:2])
    layout, mesh = local.strategy.operands[0], local.mesh
    offsets = []
    for rank in mesh.group(0, axes):
        slices = layout.local_boxes(counted, mesh, rank)[0].whole
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
    """Split batch and channels; the indices count elements of the whole result.

    ``None`` if the result shape is given or unknown, because the indices may count another shape.
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
    """Split batch, channels, and the spatial dimensions, which leave partial maxima."""
    spatial = [FactorMap({0: d}, reduction="max") for d in range(2, len(info.shape(0)))]
    return rule_of(info, [*kept_factors(info, (0, 1)), *spatial], flops_per_point=1.0)


@sharding_rule("GlobalAveragePool")
def global_average(info: OpInfo) -> Rule:
    """Split batch, channels, and the spatial dimensions, which leave partial sums.

    Each rank divides the average of its part by the number of parts.
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
    """Split batch and channels; a norm of norms is not supported."""
    spatial = [FactorMap({0: d}, can_split=False) for d in range(2, len(info.shape(0)))]
    return rule_of(info, [*kept_factors(info, (0, 1)), *spatial], flops_per_point=1.0)
