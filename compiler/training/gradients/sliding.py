"""Sums over sliding windows, and their gradients: convolutions, and the positions of windows.

Shapes: images are N x C x I..., tensors with an element per window N x M x O..., weights M x
C/groups x K..., with any number of spatial dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensoropt.compiler.sharding.ops.einsum import parse_equation
from tensoropt.compiler.sharding.ops.einsum_products import as_matrices
from tensoropt.compiler.sharding.rule.windows import Window, even_padding
from tensoropt.dialects.build import Build, element_type, int_attr, ints_attr, sizes_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = [
    "WIDE",
    "Windows",
    "by_convolution",
    "by_products",
    "convolve",
    "convolve_back",
    "end_padding",
    "pad",
    "take_strided",
    "weight_gradient",
]

Windows = Sequence[Window]
"""A window for each spatial dimension, in order."""

WIDE = 8
"""With fewer channels per group, products are too narrow: see :func:`weight_gradient`."""


def end_padding(window: Window, size: int, count: int) -> int:
    """Return how far ``count`` windows read beyond ``size``; negative if elements are unread."""
    return (count - 1) * window.stride + window.extent - window.begin - size


def pad(
    make: Build, x: ir.Value, ends: Mapping[int, tuple[int, int]], fill: float = 0.0
) -> ir.Value:
    """Return ``x`` with elements of ``fill`` added before and after some dimensions.

    A negative count removes elements instead.
    """
    import numpy as np

    shape, pads = sizes_of(x), np.zeros((2, len(sizes_of(x))), np.int64)
    for dim, both in ends.items():
        pads[:, dim] = both
        shape[dim] += sum(both)
    if not pads.any():
        return x
    operands = [x, make.constant(pads.reshape(-1)), make.scalar(fill, x)]
    return make.onnx("Pad", operands, tensor_type(shape, element_type(x)))


def take_strided(make: Build, x: ir.Value, bounds: Mapping[int, tuple[int, int, int]]) -> ir.Value:
    """Return ``x`` sliced to (first, count, step) elements of some dimensions."""
    shape = sizes_of(x)
    bounds = {d: each for d, each in bounds.items() if each != (0, shape[d], 1)}
    if not bounds:
        return x
    for dim, (_, count, _) in bounds.items():
        shape[dim] = count
    starts, counts, steps = zip(*bounds.values(), strict=True)
    stops = [at + (n - 1) * step + 1 for at, n, step in zip(starts, counts, steps, strict=True)]
    operands = [make.ints(values) for values in (starts, stops, list(bounds), steps)]
    return make.onnx("Slice", [x, *operands], tensor_type(shape, element_type(x)))


def convolve(
    make: Build, x: ir.Value, w: ir.Value, windows: Windows, counts: Sequence[int], groups: int = 1
) -> ir.Value:
    """Return Conv with ``counts`` windows along the spatial dimensions."""
    sizes = sizes_of(x)
    pairs = list(zip(windows, counts, strict=True))
    ends = [end_padding(window, sizes[window.dim], count) for window, count in pairs]
    dims = [window.dim for window in windows]
    x = pad(make, x, {dim: (0, end) for dim, end in zip(dims, ends, strict=True) if end < 0})
    pads = [*(window.begin for window in windows), *(max(end, 0) for end in ends)]
    result = tensor_type([sizes[0], sizes_of(w)[0], *counts], element_type(x))
    return make.onnx("Conv", [x, w], result, **_attributes(windows, pads, groups))


def convolve_back(
    make: Build, y: ir.Value, w: ir.Value, windows: Windows, sizes: Sequence[int], groups: int = 1
) -> ir.Value:
    """Return ConvTranspose with a result of ``sizes`` along the spatial dimensions.

    Every element of ``y`` adds its multiple of ``w`` at its window. Both ends get the same padding,
    which ONNX Runtime's CUDA kernel requires; surplus elements are sliced off.
    """
    shape = sizes_of(y)
    pairs = zip(windows, sizes, strict=True)
    ends = [end_padding(window, size, shape[window.dim]) for window, size in pairs]
    both = [even_padding(w.begin, end, w.stride) for w, end in zip(windows, ends, strict=True)]
    pads, extras, befores, afters = zip(*both, strict=True)
    whole = [sum(terms) for terms in zip(sizes, befores, afters, strict=True)]
    result = make.onnx(
        "ConvTranspose",
        [y, w],
        tensor_type([shape[0], sizes_of(w)[1] * groups, *whole], element_type(y)),
        output_padding=ints_attr(extras),
        **_attributes(windows, [*pads, *pads], groups),
    )
    return take_strided(
        make, result, {w.dim: (befores[i], sizes[i], 1) for i, w in enumerate(windows)}
    )


def _attributes(windows: Windows, pads: Sequence[int], groups: int) -> dict[str, ir.Attribute]:
    return {
        "kernel_shape": ints_attr([window.taps for window in windows]),
        "strides": ints_attr([window.stride for window in windows]),
        "dilations": ints_attr([window.dilation for window in windows]),
        "pads": ints_attr(pads),
        "group": int_attr(groups),
    }


def weight_gradient(
    make: Build, x: ir.Value, dy: ir.Value, windows: Windows, groups: int
) -> ir.Value:
    """Return, per weight, the sum over images and windows of ``dy`` times the met element of ``x``.

    With many channels this is one matrix product per element of the window. With few channels per
    group (the first layer, depthwise) it is a convolution with ``dy`` as its kernel:
    `bench/kernels/gradients.py`. Batch, channels and space can be split as in the forward op,
    except that the convolution does not split groups: there the batch is the major part of a merged
    dimension.
    """
    wide = sizes_of(x)[1] // groups >= WIDE
    return (by_products if wide else by_convolution)(make, x, dy, windows, groups)


def by_products(make: Build, x: ir.Value, dy: ir.Value, windows: Windows, groups: int) -> ir.Value:
    """Return the gradient of the weights by matrix products, one per element of the window.

    It is the sum over N of dY (N x G x M/G x O...) times the elements that meet the weight (N x G x
    O... x C/G). If the terms of that sum are larger than dY, one product sums over N and O.
    """
    counts, taps = sizes_of(dy)[2:], [window.taps for window in windows]
    batch, outputs, inputs = sizes_of(dy)[0], sizes_of(dy)[1], sizes_of(x)[1]
    x, o = _channels_last(make, x, groups), "opqrst"[: len(taps)]
    if groups == 1 and inputs * math.prod(taps) > math.prod(counts):
        dy = make.transpose(dy, [1, 0, *range(2, 2 + len(taps))])
        equation, sizes = f"mn{o},n{o}c->mc", [outputs, inputs]
    elif groups == 1:
        equation, sizes = f"nm{o},n{o}c->nmc", [batch, outputs, inputs]
    else:
        sizes = [batch, groups, outputs // groups, inputs // groups]
        dy = make.reshape(dy, [*sizes[:3], *counts])
        equation = f"ngm{o},ng{o}c->ngmc"
    taken = (_slice_taps if _is_narrow(x) else _shift_taps)(make, x, windows, counts)
    stacked = make.concat([_product(make, equation, dy, tap, sizes) for tap in taken], 0)
    rank = len(sizes_of(stacked))
    stacked = make.transpose(stacked, [*range(1, rank), 0])
    return make.reshape(stacked, [outputs, inputs // groups, *taps])


def _product(
    make: Build, equation: str, dy: ir.Value, x: ir.Value, sizes: Sequence[int]
) -> ir.Value:
    """Return an Einsum of ``sizes`` with a leading dimension of 1; a batch is summed there.

    Its operands already have the order of a matrix product, which ranks replace it by, and it
    splits along every dimension. In bfloat16, for which CUDA has no Einsum, it is a matrix product
    from the start.
    """
    kind, text = tensor_type(list(sizes), element_type(dy)), ir.StringAttr.get(equation)
    terms = parse_equation(equation, [len(sizes_of(dy)), len(sizes_of(x))])
    product = as_matrices(make, [dy, x], *terms) if _is_narrow(x) else None
    if product is None:
        product = make.onnx("Einsum", [dy, x], kind, equation=text)
    if equation.partition("->")[2].startswith("n"):
        return make.reduce("ReduceSum", product, [0])
    return make.reshape(product, [1, *sizes])


def _is_narrow(x: ir.Value) -> bool:
    return isinstance(element_type(x), ir.BF16Type)


def _channels_last(make: Build, x: ir.Value, groups: int) -> ir.Value:
    """Return ``x`` as N x I... x C, with several groups as N x G x I... x C/G."""
    batch, inputs, *sizes = sizes_of(x)
    if groups == 1:
        return make.transpose(x, [0, *range(2, 2 + len(sizes)), 1])
    x = make.reshape(x, [batch, groups, inputs // groups, *sizes])
    return make.transpose(x, [0, 1, *range(3, 3 + len(sizes)), 2])


def _slice_taps(
    make: Build, x: ir.Value, windows: Windows, counts: Sequence[int]
) -> Iterator[ir.Value]:
    """Yield the elements of :func:`_shift_taps` as slices of the padded, unsplit ``x``.

    CUDA has no kernel that shifts bfloat16.
    """
    dims = range(len(sizes_of(x)) - 1 - len(windows), len(sizes_of(x)) - 1)
    rows = list(zip(dims, windows, counts, strict=True))
    x = pad(make, x, {d: (w.begin, max(0, end_padding(w, sizes_of(x)[d], n))) for d, w, n in rows})
    for at in itertools.product(*(range(window.taps) for window in windows)):
        pairs = zip(rows, at, strict=True)
        yield take_strided(
            make, x, {d: (tap * w.dilation, n, w.stride) for (d, w, n), tap in pairs}
        )


def _shift_taps(
    make: Build, x: ir.Value, windows: Windows, counts: Sequence[int]
) -> Iterator[ir.Value]:
    """Yield the elements of ``x``, channels last, that meet each element of the windows.

    Dimensions are shifted in sequence, so that elements of a row share the shift of the row. If few
    channels are adjacent, a rank slices them from one padded copy (`pad-once`).
    """
    if not windows:
        yield x
        return
    window, dim = windows[0], len(sizes_of(x)) - 1 - len(windows)
    for tap in range(window.taps):
        first = tap * window.dilation - window.begin
        row = _shift(make, x, dim, (first, counts[0], window.stride))
        yield from _shift_taps(make, row, windows[1:], counts[1:])


def _shift(make: Build, x: ir.Value, dim: int, bounds: tuple[int, int, int]) -> ir.Value:
    """Return (first, count, step) elements of ``x`` along ``dim``, with zeros out of range.

    If there is an element for each step, ``x`` is shifted as a whole, which also works for shards;
    otherwise only the missing elements are padded.
    """
    first, count, step = bounds
    size = sizes_of(x)[dim]
    if size == count * step and abs(first) < size:
        return take_strided(make, pad(make, x, {dim: (-first, first)}), {dim: (0, count, step)})
    end = first + (count - 1) * step + 1 - size
    x = pad(make, x, {dim: (max(0, -first), max(0, end))})
    return take_strided(make, x, {dim: (max(0, first), count, step)})


def by_convolution(
    make: Build, x: ir.Value, dy: ir.Value, windows: Windows, groups: int
) -> ir.Value:
    """Return the gradient of the weights by a convolution of X with dY.

    X is an image per channel (of a group), dY the kernels, and strides become dilations. The
    convolution sums over N as over channels; with several groups, its groups are N x G.
    """
    counts, taps = sizes_of(dy)[2:], [window.taps for window in windows]
    swapped = [
        replace(w, taps=count, stride=w.dilation, dilation=w.stride)
        for w, count in zip(windows, counts, strict=True)
    ]
    order = [1, 0, *range(2, 2 + len(taps))]
    if groups > 1:
        return make.transpose(_convolve_groups(make, x, dy, swapped, taps, groups), order)
    images, kernels = (make.transpose(value, order) for value in (x, dy))
    return make.transpose(convolve(make, images, kernels, swapped, taps), order)


def _convolve_groups(
    make: Build, x: ir.Value, dy: ir.Value, windows: Windows, taps: Sequence[int], groups: int
) -> ir.Value:
    """Return C/G x M x K..., summed over N."""
    batch, inputs, *sizes = sizes_of(x)
    outputs, counts, each = sizes_of(dy)[1], sizes_of(dy)[2:], inputs // groups
    x = make.reshape(x, [batch, groups, each, *sizes])
    x = make.transpose(x, [2, 0, 1, *range(3, 3 + len(taps))])
    x = make.reshape(x, [each, batch * groups, *sizes])
    kernels = make.reshape(dy, [batch * outputs, 1, *counts])
    found = convolve(make, x, kernels, windows, taps, batch * groups)
    found = make.reshape(found, [each, batch, outputs, *taps])
    return make.reduce("ReduceSum", found, [1], keepdims=False)
