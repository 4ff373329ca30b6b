"""Gradients of convolutions and their transposes, over any number of spatial dimensions.

Dumoulin and Visin, A guide to convolution arithmetic (arXiv 1603.07285), section 4: the gradient of
a convolution with respect to its image is a transposed convolution, and vice versa.
"""

from __future__ import annotations

from dataclasses import replace

from tensoropt.compiler.sharding.rule.windows import windows_back_of, windows_of
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.compiler.training.gradients.sliding import (
    Windows,
    convolve,
    convolve_back,
    weight_gradient,
)
from tensoropt.dialects.build import Build, sizes_of
from tensoropt.dialects.mlir import ir

__all__ = ["flip_kernel"]

# Before the first element of any dimension, counted from its end.
_FAR = 2**31


@gradient("Conv")
def convolution(b: Backward) -> Gradients:
    """dX is the transposed convolution of dY with W; dW sums dY times X over all windows."""
    windows, groups = windows_of(b.info), int(b.info.attribute("group", 1))
    dx = _image(b, windows, groups) if b.wanted[0] else None
    dw = weight_gradient(b.make, b.operand(0), b.dy, windows, groups) if b.wanted[1] else None
    return b.first(dx, dw, *_bias(b))


@gradient("ConvTranspose")
def transposed_convolution(b: Backward) -> Gradients:
    """dX is the convolution of dY with W; dW sums X times dY over all windows of dY."""
    windows, groups = windows_back_of(b.info), int(b.info.attribute("group", 1))
    dx, dw = None, None
    if b.wanted[0]:
        dx = convolve(b.make, b.dy, b.operand(1), windows, b.shape(0)[2:], groups)
    if b.wanted[1]:
        dw = weight_gradient(b.make, b.dy, b.operand(0), windows, groups)
    return b.first(dx, dw, *_bias(b))


def _bias(b: Backward) -> Gradients:
    """Return dY summed over all dimensions except the channels, or nothing if there is no bias."""
    if len(b.operands) <= 2:
        return []
    dims = [0, *range(2, len(b.shape(0)))]
    return [b.make.reduce("ReduceSum", b.dy, dims, keepdims=False) if b.wanted[2] else None]


def _image(b: Backward, windows: Windows, groups: int) -> ir.Value:
    """Return dX; with several groups and dense windows, by a convolution.

    That convolution uses the flipped W, which is faster in this case: `bench/kernels/gradients.py`.
    """
    sizes = b.shape(0)[2:]
    dense = all(w.stride == 1 and w.begin < w.extent for w in windows)
    if groups == 1 or not dense:
        return convolve_back(b.make, b.dy, b.operand(1), windows, sizes, groups)
    back = [replace(w, begin=w.extent - 1 - w.begin) for w in windows]
    return convolve(b.make, b.dy, flip_kernel(b.make, b.operand(1), groups), back, sizes, groups)


def flip_kernel(make: Build, w: ir.Value, groups: int) -> ir.Value:
    """Return ``w`` (M x C/G x K...) as C x M/G x K..., with reversed windows."""
    outputs, inputs, *taps = sizes_of(w)
    dims = [dim for dim, size in enumerate(taps, 2) if size > 1]
    if dims:
        ends = [-1] * len(dims)
        bounds = [ends, [-_FAR] * len(dims), dims, ends]
        w = make.onnx("Slice", [w, *map(make.ints, bounds)], w.type)
    if outputs == groups:
        return w if inputs == 1 else make.reshape(w, [groups * inputs, 1, *taps])
    w = make.reshape(w, [groups, outputs // groups, inputs, *taps])
    w = make.transpose(w, [0, 2, 1, *range(3, 3 + len(taps))])
    return make.reshape(w, [groups * inputs, outputs // groups, *taps])
