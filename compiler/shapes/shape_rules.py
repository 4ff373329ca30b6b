"""Shapes that ONNX Runtime's kernels return and ONNX's own inference gets wrong.

The kernels decide: a wrongly inferred size would be folded into constants and sharded over ranks.
`test/fuzz/fuzz_shapes.py` compares all shape arithmetic with ONNX Runtime; each rule here covers a
difference that it found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tensoropt.compiler.sharding.ops.einsum import parse_equation
from tensoropt.compiler.sharding.rule.slicing import slice_indices
from tensoropt.compiler.sharding.rule.windows import padded_windows

__all__ = ["OPEN", "RULES", "Call", "Shape"]

OPEN = -1
"""A size that is unknown, regardless of inference."""

Shape = list[int | None]
"""Sizes; ``None`` for a size that a rule does not determine."""


@dataclass(frozen=True)
class Call:
    """A node, the sizes of its operands (``None`` if unknown) and its literal operands."""

    node: onnx.NodeProto
    shapes: Sequence[Shape | None]
    literals: Mapping[int, npt.NDArray[np.generic]]

    def attribute(self, name: str, default: object = None) -> Any:
        """Return an attribute: an int, a list of ints, or text."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = onnx.helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def has(self, index: int) -> bool:
        """Return whether operand ``index`` is present."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def shape(self, index: int) -> Shape | None:
        """Return the sizes of operand ``index``, or ``None`` if its rank is unknown."""
        return self.shapes[index] if index < len(self.shapes) else None

    def ints(self, index: int) -> list[int] | None:
        """Return operand ``index`` as integers, or ``None`` if it is not a literal."""
        literal = self.literals.get(index)
        return None if literal is None else [int(value) for value in literal.reshape(-1)]


def _pool(call: Call) -> Shape | None:
    """Return the batch, the channels and the number of windows along each other dimension."""
    shape, kernel = call.shape(0), call.attribute("kernel_shape")
    if shape is None or not kernel or len(shape) != len(kernel) + 2:
        return None
    last = bool(call.attribute("channels_last", 0))
    space = slice(1, -1) if last else slice(2, None)
    names = ("strides", "dilations", "pads")
    strides, dilations, pads = (call.attribute(name) or None for name in names)
    strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
    pads = pads or [0] * 2 * len(kernel)
    rows = (shape[space], kernel, strides, dilations, pads[: len(kernel)], pads[len(kernel) :])
    if len({len(row) for row in rows}) != 1 or min(*kernel, *strides, *dilations) < 1:
        return None
    mode, ceil = str(call.attribute("auto_pad", "NOTSET")), bool(call.attribute("ceil_mode", 0))
    found = [
        None if size is None else padded_windows(size, *row, auto_pad=mode, ceil_mode=ceil)[0]
        for size, *row in zip(*rows, strict=True)
    ]
    return [shape[0], *found, shape[-1]] if last else [*shape[:2], *found]


def _slice(call: Call) -> Shape | None:
    """Return the sizes if a step is, or may be, negative, or if starts or ends are computed."""
    shape, steps = call.shape(0), call.ints(4)
    starts, ends, axes = (call.ints(index) for index in (1, 2, 3))
    if shape is None:
        return None
    if not call.has(4) or (steps is not None and min(steps, default=1) > 0):
        return _beyond_slices(shape, axes) if call.has(1) and None in (starts, ends) else None
    if not call.has(3) and steps is not None:
        axes = list(range(len(steps)))
    if axes is None:
        return [OPEN] * len(shape)
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        return None
    sizes = list(shape)
    for axis in axes:
        sizes[axis] = OPEN
    if starts is None or ends is None or steps is None:
        return sizes
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=False):
        length = shape[axis]
        sizes[axis] = (
            OPEN if length is None or not step else len(slice_indices(length, start, end, step))
        )
    return sizes


def _beyond_slices(shape: Shape, axes: Sequence[int] | None) -> Shape | None:
    """Return the sizes of the dimensions that are not sliced: ONNX infers none of them."""
    if axes is None or any(not -len(shape) <= axis < len(shape) for axis in axes):
        return None
    sliced = {axis % len(shape) for axis in axes}
    return [None if dim in sliced else size for dim, size in enumerate(shape)]


def _gather_nd(call: Call) -> Shape | None:
    """Return the shape of a scalar result, for which ONNX infers an unknown rank."""
    data, indices = call.shape(0), call.shape(1)
    if data is None or indices is None or not indices or indices[-1] is None:
        return None
    batch = int(call.attribute("batch_dims", 0))
    whole = [*indices[:-1], *data[batch + indices[-1] :]]
    return None if whole else []


def _range(call: Call) -> Shape | None:
    """Return the number of integers; the difference of the bounds may exceed 64 bits."""
    bounds = [call.literals.get(index) for index in range(3)]
    if any(bound is None or bound.size != 1 or bound.dtype.kind != "i" for bound in bounds):
        return None
    start, limit, delta = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    if not delta:
        return None
    return [max(math.ceil(float(limit - start) / delta), 0)]


def _nonzero(call: Call) -> Shape | None:
    """Return a row per dimension, and one row for a scalar."""
    shape = call.shape(0)
    return [1, None] if shape == [] else None


def _squeeze(call: Call) -> Shape | None:
    """Return the sizes other than 1 if the list of axes is present but empty."""
    shape = call.shape(0)
    if shape is None or None in shape or call.ints(1) != []:
        return None
    return [size for size in shape if size != 1]


def _conv_transpose(call: Call) -> Shape | None:
    """Return the sizes of ConvTranspose from its explicit shape, or from strides for SAME."""
    shape, weight = call.shape(0), call.shape(1)
    if shape is None or weight is None or len(shape) != len(weight):
        return None
    space, given = shape[2:], call.attribute("output_shape")
    if given:
        found: Shape = list(given[-len(space) :])
    elif str(call.attribute("auto_pad", "NOTSET")).startswith("SAME"):
        found = _spread(call, space, weight[2:])
    else:
        return None
    each = weight[1]
    channels = None if each is None else each * int(call.attribute("group", 1))
    return [shape[0], channels, *found] if len(found) == len(space) else None


def _spread(call: Call, space: Shape, kernel: Shape) -> Shape:
    """Return a stride per element, limited to the size without padding."""
    rank = len(space)
    strides, dilations, extra = (
        call.attribute(name) or [default] * rank
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    return [
        None
        if size is None or taps is None
        else min(size * step, (size - 1) * step + (taps - 1) * dilation + 1 + more)
        for size, taps, step, dilation, more in zip(
            space, kernel, strides, dilations, extra, strict=False
        )
    ]


def _einsum(call: Call) -> Shape | None:
    """Return the size of each letter: its size other than 1, if it has one."""
    shapes = [shape for shape in call.shapes if shape is not None]
    if len(shapes) < len(call.shapes):
        return None
    ranks = [len(shape) for shape in shapes]
    terms, result = parse_equation(str(call.attribute("equation")), ranks)
    if any(len(labels) != rank for labels, rank in zip(terms, ranks, strict=True)):
        return None
    sizes: dict[str, set[int | None]] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            sizes.setdefault(label, set()).add(size)
    return [_widest(sizes[label]) for label in result]


def _widest(sizes: set[int | None]) -> int | None:
    """Return the size that others are broadcast to, or ``None`` if it is unknown."""
    left = sizes - {1}
    return 1 if not left else next(iter(left)) if len(left) == 1 else None


def _stft(call: Call) -> Shape | None:
    """Return the frames and bins: a frame is as long as its window if no length is present."""
    shape, window = call.shape(0), call.shape(2)
    step, length = call.ints(1), call.ints(3)
    if shape is None or len(shape) != 3:
        return None
    points = length[0] if length else window[0] if window else None
    frames = bins = OPEN
    if points is not None and points > 0:
        bins = points // 2 + 1 if call.attribute("onesided", 1) else points
        if shape[1] is not None and step and step[0] > 0:
            frames = (shape[1] - points) // step[0] + 1
    return [shape[0], frames, bins, 2]


def _window(call: Call) -> Shape | None:
    """Return one open size, for which ONNX infers an unknown rank."""
    return None if call.ints(0) else [OPEN]


def _mel_matrix(call: Call) -> Shape | None:
    """Return the bins and the mel bands: ONNX infers no rank if either is unknown."""
    bands, points = call.ints(0), call.ints(1)
    return [points[0] // 2 + 1 if points else OPEN, bands[0] if bands else OPEN]


def _max_unpool(call: Call) -> Shape | None:
    """Return the sizes in the operand `output_shape`, which ONNX does not read."""
    shape = call.shape(0)
    if shape is None or not call.has(2):
        return None
    return list(call.ints(2) or [OPEN] * len(shape))


def _concat(call: Call) -> Shape | None:
    """Return the sizes for a negative axis, which ONNX refuses before opset 11."""
    axis = call.attribute("axis", 1)
    shapes = [shape for shape in call.shapes if shape is not None and -axis <= len(shape)]
    if axis >= 0 or len(shapes) < len(call.shapes) or len({len(shape) for shape in shapes}) > 1:
        return None
    columns = list(zip(*shapes, strict=True))
    joined: Shape = [next((n for n in sizes if n is not None), None) for sizes in columns]
    lengths = [size for size in columns[axis] if size is not None]
    joined[axis] = sum(lengths) if len(lengths) == len(shapes) else None
    return joined


def _same(call: Call) -> Shape | None:
    """Return the shape of the operand; ONNX infers the shape of a function in some opsets only."""
    return call.shape(0)


RULES: Mapping[str, Callable[[Call], Shape | None]] = {
    "AveragePool": _pool,
    "BlackmanWindow": _window,
    "Concat": _concat,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "GatherND": _gather_nd,
    "GroupNormalization": _same,
    "HammingWindow": _window,
    "HannWindow": _window,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MaxUnpool": _max_unpool,
    "MeanVarianceNormalization": _same,
    "MelWeightMatrix": _mel_matrix,
    "NonZero": _nonzero,
    "Range": _range,
    "STFT": _stft,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "com.microsoft.QLinearAveragePool": _pool,
}
"""By operator: the shape of each result, or ``None`` if ONNX's inference is right."""
