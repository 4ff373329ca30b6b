"""Convolutions, pools, resizing: what slides over an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker


def image(b: Builder, *, exact: bool | None = None) -> Value:
    """Return a value of batch, channels and one or two dimensions more; perhaps a new input."""
    if b.flip(0.6):
        return b.pick(lambda v: v.dtype == "float32" and v.rank in (3, 4))
    shape = (b.integer(1, 3), b.choose((1, 2, 3, 4, 6)), *(b.integer(1, 8),) * b.flip(0.8),
             b.integer(1, 8))  # fmt: skip
    return b.input(shape, exact=b.flip(0.7) if exact is None else exact)


def window(b: Builder, rank: int, *, dilated: bool = True) -> dict[str, Any]:
    """Return the attributes of a window over ``rank`` dimensions."""
    kernel = [b.integer(1, 3) for _ in range(rank)]
    held: dict[str, Any] = {"kernel_shape": kernel}
    if b.flip():
        held["strides"] = [b.integer(1, 3) for _ in range(rank)]
    if b.flip(0.3) and dilated:
        held["dilations"] = [b.integer(1, 2) for _ in range(rank)]
    if b.flip(0.3):
        held["auto_pad"] = b.choose(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
        if held["auto_pad"] != "NOTSET" and "dilations" in held:
            del held["dilations"]
    elif b.flip(0.6):
        held["pads"] = [b.integer(0, max(0, n - 1)) for n in (*kernel, *kernel)]
    return held


@maker(4.0)
def conv(b: Builder) -> None:
    x = image(b)
    channels, exact = x.shape[1], x.bits is not None
    groups = b.choose([n for n in range(1, channels + 1) if channels % n == 0])
    held = window(b, x.rank - 2)
    filters = groups * b.integer(1, 3)
    w = b.weight((filters, channels // groups, *held["kernel_shape"]), x.dtype, exact)
    bias = [b.weight((filters,), x.dtype, exact)] if b.flip() else []
    if b.flip(0.3):
        del held["kernel_shape"]
    b.add("Conv", x, w, *bias, group=groups if groups > 1 else None, exact="linear", **held)


@maker(1.0)
def conv_transpose(b: Builder) -> None:
    x = image(b)
    channels, exact = x.shape[1], x.bits is not None
    groups = b.choose([n for n in range(1, channels + 1) if channels % n == 0])
    held = window(b, x.rank - 2)
    filters = b.integer(1, 3)
    w = b.weight((channels, filters, *held["kernel_shape"]), x.dtype, exact)
    bias = [b.weight((groups * filters,), x.dtype, exact)] if b.flip() else []
    b.add("ConvTranspose", x, w, *bias, group=groups, exact="linear", **held)


@maker(3.0)
def pool(b: Builder) -> None:
    x = image(b)
    kind = b.choose(("MaxPool", "AveragePool", "LpPool"))
    dilated = kind == "MaxPool" or b.opset >= (19 if kind == "AveragePool" else 18)
    held = window(b, x.rank - 2, dilated=dilated)
    if kind != "LpPool" or b.opset >= 18:
        held["ceil_mode"] = b.choose((None, 0, 1))
    if kind == "AveragePool":
        held["count_include_pad"] = b.choose((None, 0, 1))
    if kind == "LpPool":
        held["p"] = b.choose((None, 1, 2, 3))
    if kind == "MaxPool" and b.flip(0.2):
        b.add(kind, x, results=2, exact="jump", **held)
    else:
        b.add(kind, x, exact="move" if kind == "MaxPool" else "no", **held)


@maker(1.5)
def global_pool(b: Builder) -> None:
    kind = b.choose(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    b.add(kind, image(b), exact="move" if kind == "GlobalMaxPool" else "no")


@maker(0.7)
def response(b: Builder) -> None:
    b.add("LRN", b.float(rank=4, dtype="float32"), size=b.choose((1, 3, 5)))


@maker(1.5)
def resize(b: Builder) -> None:
    x = image(b)
    mode = b.choose(("nearest", "linear", "cubic") if x.rank == 4 else ("nearest", "linear"))
    held: dict[str, Any] = {"mode": mode}
    held["coordinate_transformation_mode"] = b.choose(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    )
    if mode == "nearest":
        held["nearest_mode"] = b.choose(("floor", "ceil", "round_prefer_floor"))
    elif mode == "cubic":
        held["cubic_coeff_a"] = -0.5
    sizes = [n if axis < 2 else b.integer(1, 2 * n) for axis, n in enumerate(x.shape)]
    exact = "move" if mode == "nearest" else "no"
    if b.flip():
        b.add("Resize", x, None, None, b.numbers_of(sizes), exact=exact, **held)
        return
    scales = [1.0, 1.0, *(b.choose((0.5, 1.0, 1.5, 2.0)) for _ in x.shape[2:])]
    roi = None if b.flip() else b.constant(np.zeros(0, np.float32), kept=False)
    b.add("Resize", x, roi, b.numbers_of(scales, "float32"), exact=exact, **held)


@maker(0.5, since=16)
def grid_sample(b: Builder) -> None:
    x = b.float(rank=4, dtype="float32")
    shape = (x.shape[0], b.integer(1, 4), b.integer(1, 4), 2)
    grid = b.constant(b.rng.uniform(-1.2, 1.2, shape).astype(np.float32))
    modes = ("linear", "cubic") if b.opset >= 20 else ("bilinear", "bicubic")
    held = {"mode": b.choose(modes), "padding_mode": b.choose(("zeros", "border", "reflection"))}
    b.add("GridSample", x, grid, align_corners=b.integer(0, 1), **held)


@maker(0.4, since=18)
def columns(b: Builder) -> None:
    """Add Col2Im, of columns that are there or new."""
    height, width = b.integer(1, 4), b.integer(1, 4)
    blocks = [b.integer(1, height), b.integer(1, width)]
    count = (height - blocks[0] + 1) * (width - blocks[1] + 1)
    x = b.input((b.integer(1, 2), b.integer(1, 3) * blocks[0] * blocks[1], count))
    b.add("Col2Im", x, b.numbers_of([height, width]), b.numbers_of(blocks), exact="linear")


@maker(0.4)
def transform(b: Builder) -> None:
    if b.opset < 17:
        raise UnsuitableError("younger")
    x = b.input((b.integer(1, 3), b.size() + 1, b.choose((1, 2))), exact=b.flip())
    if b.opset >= 20:
        b.add("DFT", x, None, b.numbers_of(1), onesided=b.choose((None, 0)))
    else:
        b.add("DFT", x, axis=1, onesided=b.choose((None, 0)))
