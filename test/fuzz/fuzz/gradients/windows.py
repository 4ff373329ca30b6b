"""Convolutions and pooling in all their forms, and resizing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper
from torch.nn import functional

from fuzz.gradients.draft import Draft, UnfitError, Value, away, distinct, maker

__all__: list[str] = []

_Ends = list[tuple[int, int]]


@dataclass(frozen=True)
class _Windows:
    """Windows over the spatial ``sizes``; ``ends`` are the pads that the attributes mean."""

    sizes: list[int]
    taps: list[int]
    strides: list[int]
    dilations: list[int]
    ends: _Ends
    attributes: dict[str, Any]


def _image(d: Draft, channels: int, least: int = 2, most: int = 6) -> Value:
    spatial = [d.whole(least, most) for _ in range(d.choice([1, 2, 2, 2, 3]))]
    if len(spatial) == 3:
        spatial = [min(n, 3) for n in spatial]
    old = [v for v in d.floats() if v.rank > 2 and v.shape[1] == channels and v.size]
    old = [v for v in old if min(v.shape) > 0]
    return d.choice(old) if old and d.chance(0.4) else d.weight([d.whole(1, 2), channels, *spatial])


def _windows(d: Draft, sizes: list[int], *, wide: bool = False) -> _Windows:
    taps = [d.whole(1, min(3, n)) for n in sizes]
    strides = [d.choice([1, 1, 2, 3]) for _ in sizes]
    mode = d.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    free = not mode.startswith("SAME")  # ONNX Runtime has no dilations there
    dilations = [d.choice([1, 1, 2]) if free else 1 for _ in sizes]
    extents = [(t - 1) * n + 1 for t, n in zip(taps, dilations, strict=True)]
    held: dict[str, Any] = {"kernel_shape": taps}
    if strides != [1] * len(sizes) or d.chance(0.3):
        held["strides"] = strides
    if dilations != [1] * len(sizes):
        held["dilations"] = dilations
    ends: _Ends = [(0, 0)] * len(sizes)
    if mode == "NOTSET":
        ends = [(d.whole(0, most), d.whole(0, most)) for most in
                (extent if wide else (tap - 1) // 1 for extent, tap in zip(extents, taps, strict=True))]  # noqa: E501  # fmt: skip
        held["pads"] = [a for a, _ in ends] + [b for _, b in ends]
    else:
        held["auto_pad"] = mode
    if mode.startswith("SAME"):
        ends = [_same(n, e, s, mode) for n, e, s in zip(sizes, extents, strides, strict=True)]
    if mode.startswith("SAME") and any(s > e for s, e in zip(strides, extents, strict=True)):
        raise UnfitError  # padding would be negative
    rows = zip(sizes, ends, extents, strict=True)
    if any(n + a + b < extent for n, (a, b), extent in rows):
        raise UnfitError
    return _Windows(sizes, taps, strides, dilations, ends, held)


def _same(size: int, extent: int, stride: int, mode: str) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + extent - size)
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _wider(x: Any, ends: _Ends, fill: float = 0.0) -> Any:
    return functional.pad(x, [n for pair in reversed(ends) for n in pair], value=fill)


@maker(3, narrow=True)
def convolution(d: Draft) -> None:
    groups, each = d.choice([1, 1, 2, 3]), d.whole(1, 2)
    x = _image(d, groups * each)
    held = _windows(d, x.shape[2:], wide=True)
    outputs = groups * d.whole(1, 2)
    w = d.like([outputs, each, *held.taps])
    bias = [d.like([outputs])] if d.chance(0.5) else []
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[x.rank - 3]

    def convolved(x: Any, w: Any, b: Any = None) -> Any:
        x = _wider(x, held.ends)
        return function(x, w, b, held.strides, 0, held.dilations, groups)

    attributes = dict(held.attributes)
    if groups > 1 or d.chance(0.2):
        attributes["group"] = groups
    if d.chance(0.3):
        attributes.pop("kernel_shape")
    d.add("Conv", [x, w, *bias], convolved, attributes)


@maker(1.5, narrow=True)
def transposed_convolution(d: Draft) -> None:
    groups, each = d.choice([1, 1, 2]), d.whole(1, 2)
    x = _image(d, groups * each, 1, 4)
    rank = x.rank - 2
    taps, strides = [d.whole(1, 3) for _ in range(rank)], [d.whole(1, 2) for _ in range(rank)]
    dilations = [d.choice([1, 1, 2]) for _ in range(rank)]
    outputs = d.whole(1, 2)
    w = d.like([groups * each, outputs, *taps])
    bias = [d.like([groups * outputs])] if d.chance(0.5) else []
    extra = [
        d.whole(0, max(s, n) - 1) if d.chance(0.3) else 0
        for s, n in zip(strides, dilations, strict=True)
    ]
    extra = [min(n, s - 1) for n, s in zip(extra, strides, strict=True)]
    whole = [(n - 1) * s + (t - 1) * i + 1 + e for n, s, t, i, e in
             zip(x.shape[2:], strides, taps, dilations, extra, strict=True)]  # fmt: skip
    held, ends = _transposed_pads(
        d, x.shape[2:], whole, [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    )
    function = (functional.conv_transpose1d, functional.conv_transpose2d,
                functional.conv_transpose3d)[rank - 1]  # fmt: skip

    def spread(x: Any, w: Any, b: Any = None) -> Any:
        y = function(x, w, None, strides, 0, 0, groups, dilations)
        y = _wider(y, [(0, e) for e in extra])
        for dim, (before, behind) in enumerate(ends, start=2):
            y = y.narrow(dim, before, y.shape[dim] - before - behind)
        return y if b is None else y + b.reshape([-1] + [1] * rank)

    held |= {"strides": strides, "dilations": dilations}
    held |= {"group": groups} if groups > 1 else {}
    held |= {"output_padding": extra} if any(extra) else {}
    d.add("ConvTranspose", [x, w, *bias], spread, held)


def _transposed_pads(
    d: Draft, sizes: list[int], whole: list[int], same: list[int]
) -> tuple[dict[str, Any], _Ends]:
    """Return the attributes and what they cut off both ends of a result of ``whole`` sizes."""
    mode = d.choice(["NOTSET", "NOTSET", "output_shape", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "NOTSET":
        ends = [(d.whole(0, min(2, n - 1)), 0) for n in whole]
        ends = [(a, d.whole(0, min(2, n - a - 1))) for n, (a, _) in zip(whole, ends, strict=True)]
        return {"pads": [a for a, _ in ends] + [b for _, b in ends]}, ends
    if mode == "VALID":
        return {"auto_pad": mode}, [(0, 0)] * len(whole)
    # ONNX Runtime has no shape for a result that is shorter than the operand.
    made = [d.whole(least, n) for least, n in zip(sizes, whole, strict=True)]
    made = made if mode == "output_shape" else same
    if any(n < own for n, own in zip(whole, made, strict=True)):
        raise UnfitError
    totals = [n - own for n, own in zip(whole, made, strict=True)]
    upper = mode == "SAME_UPPER"
    ends = [(n // 2, n - n // 2) if upper else (n - n // 2, n // 2) for n in totals]
    return ({"output_shape": made} if mode == "output_shape" else {"auto_pad": mode}), ends


def _ceiled(d: Draft, held: _Windows) -> tuple[dict[str, Any], list[int]]:
    """Return the attributes, with ``ceil_mode`` or without, and how much more the windows read."""
    attributes = dict(held.attributes)
    if "auto_pad" in attributes or d.chance(0.6):
        return attributes, [0] * len(held.sizes)
    more: list[int] = []
    short = []
    for n, tap, stride, dilation, (a, b) in zip(
        held.sizes, held.taps, held.strides, held.dilations, held.ends, strict=True
    ):
        room = n + a + b - (tap - 1) * dilation - 1
        count = -(-room // stride) + 1
        fewer = (count - 1) * stride >= n + a  # a last window that begins in the padding is none
        more.append(0 if fewer else (count - 1) * stride - room)
        short.append(fewer)
    if any(short) and any(more):
        raise UnfitError  # no attributes say so that ONNX Runtime's inference is right
    attributes["ceil_mode"] = 1
    return attributes, more


@maker(2, narrow=True)
def max_pool(d: Draft) -> None:
    x = _image(d, d.whole(1, 3))
    held = _windows(d, x.shape[2:])
    if x.size == 0:
        raise UnfitError
    distinct(x.tensor.reshape(-1).unique())
    attributes, more = _ceiled(d, held)
    ends = [(a, b + n) for (a, b), n in zip(held.ends, more, strict=True)]
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[x.rank - 3]

    def pooled(x: Any) -> Any:
        x = _wider(x, ends, -1e30)
        return function(x, held.taps, held.strides, 0, held.dilations)

    d.add("MaxPool", [x], pooled, attributes)


@maker(2, narrow=True)
def average_pool(d: Draft) -> None:
    x = _image(d, d.whole(1, 3))
    held = _windows(d, x.shape[2:])
    attributes, more = _ceiled(d, held)
    include = d.chance(0.5)
    if include:
        attributes["count_include_pad"] = 1
    ends = [(a, b + n) for (a, b), n in zip(held.ends, more, strict=True)]

    def pooled(x: Any) -> Any:
        ones = torch.ones_like(x[:1, :1])
        if include:
            ones = _wider(ones, held.ends, 1.0)
            ones = _wider(ones, [(0, n) for n in more])
        else:
            ones = _wider(ones, ends)
        return _summed(_wider(x, ends), held) / _summed(ones, held)

    d.add("AveragePool", [x], pooled, attributes)


def _summed(x: Any, held: _Windows) -> Any:
    """Return the sum of each window of padded ``x``."""
    for dim, (tap, stride, dilation) in enumerate(
        zip(held.taps, held.strides, held.dilations, strict=True), start=2
    ):
        extent = (tap - 1) * dilation + 1
        x = x.unfold(dim, extent, stride)[..., ::dilation].sum(-1)
    return x


@maker(0.7, narrow=True)
def norm_pool(d: Draft) -> None:
    x = _image(d, d.whole(1, 3))
    held, order = _windows(d, x.shape[2:]), d.whole(1, 3)
    x = d.within(0.3, 2, x)
    attributes, more = _ceiled(d, held)
    ends = [(a, b + n) for (a, b), n in zip(held.ends, more, strict=True)]

    def pooled(x: Any) -> Any:
        return _summed(_wider(x, ends) ** order, held) ** (1 / order)

    d.add("LpPool", [x], pooled, {**attributes, "p": order})


@maker(1, narrow=True)
def global_pool(d: Draft) -> None:
    x = _image(d, d.whole(1, 3))
    op_type, dims = (
        d.choice(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]),
        list(range(2, x.rank)),
    )
    if op_type == "GlobalAveragePool":
        d.add(op_type, [x], lambda x: x.mean(dims, True))
    elif op_type == "GlobalMaxPool":
        distinct(x.tensor.reshape(-1).unique())
        d.add(op_type, [x], lambda x: x.amax(dims, True))
    else:
        away(x.tensor, 0, by=1e-2)
        if bool((x.tensor == 0).any()):
            raise UnfitError
        d.add(op_type, [x], lambda x: x.square().sum(dims, True).sqrt(), {"p": 2})


@maker(1, narrow=True)
def resize(d: Draft) -> None:
    """A linear function, whose matrix ONNX Runtime gives."""
    x = _image(d, 1)
    spatial = x.shape[2:]
    mode = d.choice(["nearest", "linear", "cubic"] if len(spatial) == 2 else ["nearest", "linear"])
    places = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    held: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.choice(places)}
    if mode == "nearest":
        kinds = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        held["nearest_mode"] = d.choice(kinds)
    sizes = [d.whole(1, 7) for _ in spatial]
    scaled = d.chance(0.5)
    scales = [float(d.choice([0.5, 1.0, 1.5, 2.0, 3.0])) for _ in spatial]
    if scaled:
        sizes = [math.floor(n * s) for n, s in zip(spatial, scales, strict=True)]
        far = np.array([1.0, 1.0, *scales], np.float32)
        operands = [x, None, d.leaf(d.literals, "c", far)]
    else:
        operands = [x, None, None, d.ints([*x.shape[:2], *sizes])]
    if min(sizes) < 1 or math.prod(spatial) > 80:
        raise UnfitError
    weights = _matrix(d.opset, held, spatial, sizes, scales if scaled else None)

    def resized(x: Any, *_: Any) -> Any:
        flat = x.reshape(*x.shape[:2], -1) @ weights.to(x.dtype)
        return flat.reshape(*x.shape[:2], *sizes)

    d.add("Resize", operands, resized, held)


def _matrix(
    opset: int, held: dict[str, Any], spatial: list[int], sizes: list[int],
    scales: list[float] | None,
) -> Any:  # fmt: skip
    """Return the weights of every element of the input in every one of the result."""
    count = math.prod(spatial)
    names = ["x", "", "s"] if scales is not None else ["x", "", "", "s"]
    whole = (
        np.array([1, 1, *scales], np.float32)
        if scales is not None
        else np.array([count, 1, *sizes])
    )
    graph = helper.make_graph(
        [helper.make_node("Resize", names, ["y"], **held)],
        "resize",
        [helper.make_tensor_value_info("x", 1, [count, 1, *spatial])],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(whole, "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
        units = np.eye(count, dtype=np.float32).reshape(count, 1, *spatial)
        (found,) = session.run(None, {"x": units})
    except Exception:  # forms that ONNX Runtime does not have
        raise UnfitError from None
    return torch.tensor(found.reshape(count, -1), dtype=torch.float64)
