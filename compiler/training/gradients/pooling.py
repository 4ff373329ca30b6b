"""Gradients of pooling over windows and over all spatial dimensions; Y has an element per window.

Positions of maxima are found again in the backward pass: MaxPool is fast without indices, which
would have to be saved, and can then split rows. Indices are reduced to positions within one image
and channel before use, so both of these dimensions can be split.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tensoropt.compiler.sharding.rule.windows import Window, windows_of
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.compiler.training.gradients.scattering import zeros_of_run
from tensoropt.compiler.training.gradients.sliding import (
    Windows,
    convolve_back,
    end_padding,
    pad,
)
from tensoropt.dialects.build import Build, element_type, int_attr, onnx_attr, sizes_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_NORM_ORDER = 2


@gradient("MaxPool")
def max_pool(b: Backward) -> Gradients:
    """dY at the first maximum of each window, summed where windows overlap."""
    make, sizes, counts = b.make, b.shape(0), sizes_of(b.dy)
    planes = [*sizes[:2], math.prod(sizes[2:])]
    windows = [*counts[:2], math.prod(counts[2:])]
    # MaxPool again, for the positions of the maxima, counted row by row over the whole input.
    attributes = {name: onnx_attr(value) for name, value in b.info.attributes}
    attributes["storage_order"] = int_attr(0)
    types = [b.dy.type, _integers(counts)]
    _, indices = make.onnx_many("MaxPool", [b.operand(0)], types, **attributes)
    flat = make.onnx("Mod", [indices, _whole(make, planes[2])], _integers(counts))
    at, dy = make.reshape(flat, windows), make.reshape(b.dy, windows)
    dx = _scatter(make, planes, at, dy, reduction="add")
    return [make.reshape(dx, sizes)]


def _integers(shape: list[int]) -> ir.Type:
    return tensor_type(shape, ir.IntegerType.get_signless(64))


def _whole(make: Build, value: int) -> ir.Value:
    import numpy as np

    return make.constant(np.array(value, np.int64))


def _scatter(
    make: Build, shape: list[int], at: ir.Value, values: ir.Value, *, reduction: str = "none"
) -> ir.Value:
    """Return zeros (N x C x L) with ``values`` at the positions ``at`` of the last dimension."""
    zeros = zeros_of_run(make, at, element_type(values), shape, shared=2)
    how = ir.StringAttr.get(reduction)
    operands = [zeros, at, values]
    return make.onnx("ScatterElements", operands, zeros.type, axis=int_attr(2), reduction=how)


@gradient("MaxUnpool")
def max_unpool(b: Backward) -> Gradients:
    """dY at the positions that X was written to.

    If the shape of the result is an operand, positions count in another tensor and are used flat.
    """
    make, sizes, whole = b.make, b.shape(0), sizes_of(b.dy)
    if b.has(2):
        at = make.reshape(b.operand(1), [math.prod(sizes)])
        found = make.take(make.reshape(b.dy, [math.prod(whole)]), at, 0)
        return b.first(make.reshape(found, sizes))
    rows = [*sizes[:2], math.prod(sizes[2:])]
    planes = [*whole[:2], math.prod(whole[2:])]
    flat = make.onnx("Mod", [b.operand(1), _whole(make, planes[2])], _integers(sizes))
    reshaped = [make.reshape(b.dy, planes), make.reshape(flat, rows)]
    kind = tensor_type(rows, element_type(b.dy))
    found = make.onnx("GatherElements", reshaped, kind, axis=int_attr(2))
    return b.first(make.reshape(found, sizes))


@gradient("AveragePool")
def average_pool(b: Backward) -> Gradients:
    """dY divided by the number of elements counted in each window, at each element of it."""
    windows, sizes = windows_of(b.info), b.shape(0)
    include = bool(b.info.attribute("count_include_pad", 0))
    dy = b.dy
    for window in windows:
        count = sizes_of(dy)[window.dim]
        counts = _element_counts(window, sizes[window.dim], count, include=include)
        if len(set(counts)) != 1:
            shape = [len(counts) if dim == window.dim else 1 for dim in range(len(sizes))]
            shares = b.make.like([1.0 / n for n in counts], dy).reshape(shape)
            dy = b.make.mul(dy, b.make.constant(shares))
        elif counts[0] != 1:
            dy = b.make.scaled(dy, 1.0 / counts[0])
    return [_spread(b.make, dy, windows, sizes)]


def _element_counts(window: Window, size: int, count: int, *, include: bool) -> list[int]:
    """Return the number of elements that each window along one dimension counts.

    Elements beyond the explicit padding (`ceil_mode`) are not counted.
    """
    first, last = (-window.begin, size + window.end) if include else (0, size)
    starts = (i * window.stride - window.begin for i in range(count))
    taps = range(0, window.taps * window.dilation, window.dilation)
    return [sum(first <= start + tap < last for tap in taps) for start in starts]


def _spread(make: Build, y: ir.Value, windows: Windows, sizes: list[int]) -> ir.Value:
    """Return, per element of N x C x I..., the sum of ``y`` over the windows that contain it.

    No window contains elements before the first window, or a stride or more after the last.
    """
    counts, ends = sizes_of(y), {}
    for w in windows:
        rest = -end_padding(w, sizes[w.dim], counts[w.dim])
        ends[w.dim] = max(-w.begin, 0), rest if rest >= w.stride else 0
    inner = [size - sum(ends.get(dim, (0, 0))) for dim, size in enumerate(sizes)]
    starts = [replace(window, begin=max(window.begin, 0)) for window in windows]
    return pad(make, _spread_inside(make, y, starts, inner), ends)


def _spread_inside(make: Build, y: ir.Value, windows: Windows, sizes: list[int]) -> ir.Value:
    counts = sizes_of(y)[2:]
    if all(_tiles(w, sizes[w.dim], n) for w, n in zip(windows, counts, strict=True)):
        apart = [size for n in counts for size in (n, 1)]
        whole = [size for w, n in zip(windows, counts, strict=True) for size in (n, w.taps)]
        y = make.expand(make.reshape(y, [*sizes[:2], *apart]), [*sizes[:2], *whole])
        return make.reshape(y, sizes)
    ones = make.expand(make.scalar(1.0, y), [sizes[1], 1, *(w.taps for w in windows)])
    return convolve_back(make, y, ones, windows, sizes[2:], sizes[1])


def _tiles(window: Window, size: int, count: int) -> bool:
    is_disjoint = window.stride == window.taps and window.dilation == 1
    return is_disjoint and window.begin == 0 and end_padding(window, size, count) == 0


@gradient("LpPool")
def lp_pool(b: Backward) -> Gradients:
    """dX = sign(X) |X|^(p-1) times the sum over the windows of dY Y^(1-p)."""
    shares = _shares(b)
    return [_weigh(b, _spread(b.make, shares, windows_of(b.info), b.shape(0)))]


@gradient("GlobalLpPool")
def global_lp_pool(b: Backward) -> Gradients:
    """The gradient of LpPool over all spatial dimensions."""
    return [_weigh(b, _shares(b))]


def _shares(b: Backward) -> ir.Value:
    """Return dY Y^(1-p), zero where Y is zero."""
    make, order = b.make, int(b.info.attribute("p", _NORM_ORDER))
    if order == 1:
        return b.dy
    y = _shaped_result(b)
    power = y if order == _NORM_ORDER else make.binary("Pow", y, make.scalar(order - 1, y))
    zero = make.scalar(0.0, y)
    return make.where(make.compare("Equal", y, zero), zero, make.div(b.dy, power))


def _shaped_result(b: Backward) -> ir.Value:
    """Return Y in the shape of dY: ONNX Runtime's shape inference and kernel can disagree."""
    y, same = b.result(), str(b.info.attribute("auto_pad", "")).startswith("SAME")
    dilated = max(b.info.attribute("dilations", ()), default=1) > 1
    differs = b.info.attribute("ceil_mode", 0) or (same and dilated)
    return b.make.reshape(y, sizes_of(b.dy)) if differs else y


def _weigh(b: Backward, shares: ir.Value) -> ir.Value:
    """Return sign(X) |X|^(p-1) times ``shares``."""
    make, x, order = b.make, b.operand(0), int(b.info.attribute("p", _NORM_ORDER))
    if order == _NORM_ORDER:
        return make.mul(x, shares)
    sign = make.unary("Sign", x)
    if order > 1:
        power = make.binary("Pow", make.unary("Abs", x), make.scalar(order - 1, x))
        sign = make.mul(sign, power)
    return make.mul(sign, shares)


@gradient("GlobalAveragePool")
def global_average_pool(b: Backward) -> Gradients:
    """dY divided by the number of elements, everywhere."""
    sizes = b.shape(0)
    return [b.make.expand(b.make.scaled(b.dy, 1.0 / math.prod(sizes[2:])), sizes)]


@gradient("GlobalMaxPool")
def global_max_pool(b: Backward) -> Gradients:
    """dY, at the first maximum."""
    make, sizes = b.make, b.shape(0)
    x = make.reshape(b.operand(0), [*sizes[:2], math.prod(sizes[2:])])
    kind = _integers([*sizes[:2], 1])
    at = make.onnx("ArgMax", [x], kind, axis=int_attr(2), keepdims=int_attr(1))
    dx = _scatter(make, sizes_of(x), at, make.reshape(b.dy, [*sizes[:2], 1]))
    return [make.reshape(dx, sizes)]
