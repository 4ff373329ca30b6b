"""Activations between the layers of an expert, and their slopes, as `MoE` computes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.routing import flat
from tensoropt.dialects.build import Build, onnx_attr, shape_of
from tensoropt.dialects.mlir import ir

__all__ = ["Activated", "activate"]

_CUBE = 0.044715
"""The factor of the cube in the approximation of GELU (Hendrycks and Gimpel, arXiv 1606.08415)."""


@dataclass(frozen=True)
class Activated:
    """An activation: its value, and the gradient of its argument by the gradient of the value."""

    value: ir.Value
    gradient: Callable[[ir.Value], ir.Value]


def activate(make: Build, x: ir.Value, info: OpInfo) -> Activated:
    """Return the activation of a mixture ``info`` at the features ``x``, one row per token."""
    return _ACTIVATIONS[str(info.attribute("activation_type", "relu"))](make, x, info)


def _identity(make: Build, x: ir.Value, info: OpInfo) -> Activated:
    return Activated(x, lambda dy: dy)


def _relu(make: Build, x: ir.Value, info: OpInfo) -> Activated:
    zero = make.scalar(0.0, x)
    above = make.compare("Greater", x, zero)
    return Activated(make.unary("Relu", x), lambda dy: make.where(above, dy, zero))


def _silu(make: Build, x: ir.Value, info: OpInfo) -> Activated:
    gate = make.unary("Sigmoid", x)
    y = make.mul(x, gate)
    return Activated(y, lambda dy: make.mul(dy, _swish_slope(make, gate, y, 1.0)))


def _gelu(make: Build, x: ir.Value, info: OpInfo) -> Activated:
    square, root = make.mul(x, x), math.sqrt(2 / math.pi)
    inner = make.mul(make.scaled(x, root), make.shifted(make.scaled(square, _CUBE), 1.0))
    t = make.unary("Tanh", inner)

    def gradient(dy: ir.Value) -> ir.Value:
        inner_slope = make.shifted(make.scaled(square, 3 * _CUBE * root), root)
        rest = make.sub(make.scalar(1.0, t), make.mul(t, t))
        slope = make.add(make.shifted(t, 1.0), make.mul(make.mul(x, rest), inner_slope))
        return make.mul(dy, make.scaled(slope, 0.5))

    return Activated(make.onnx("Gelu", [x], x.type, approximate=onnx_attr("tanh")), gradient)


def _swiglu(make: Build, x: ir.Value, info: OpInfo) -> Activated:
    """Return `g sigmoid(alpha g) (v + beta)` of gates ``g`` and values ``v``, in turn in ``x``."""
    alpha = float(info.attribute("activation_alpha", 1.0))
    beta = float(info.attribute("activation_beta", 0.0))
    limit = info.attribute("swiglu_limit")
    rows, double = shape_of(x)
    width = (double or 0) // 2
    pairs = flat(make, x, [rows, width, 2])
    free = [make.squeeze(make.slice(pairs, 2, n, n + 1), [2]) for n in (0, 1)]
    g, v = free
    if limit is not None:
        g = make.binary("Min", g, make.scalar(limit, g))
        v = make.binary("Max", make.binary("Min", v, make.scalar(limit, v)),
                        make.scalar(-limit, v))  # fmt: skip
    gate = make.unary("Sigmoid", make.scaled(g, alpha) if alpha != 1.0 else g)
    swish = make.mul(g, gate)
    value = make.shifted(v, beta) if beta else v

    def gradient(dy: ir.Value) -> ir.Value:
        slope = _swish_slope(make, gate, swish, alpha)
        found = [make.mul(make.mul(dy, value), slope), make.mul(dy, swish)]
        if limit is not None:
            most = make.scalar(limit, x)
            bounded = free[0], make.unary("Abs", free[1])
            found = [
                make.where(make.compare("LessOrEqual", own, most), dx, make.scalar(0.0, dx))
                for own, dx in zip(bounded, found, strict=True)
            ]
        both = make.concat([make.unsqueeze(dx, [2]) for dx in found], 2)
        return flat(make, both, [rows, 2 * width])

    return Activated(make.mul(swish, value), gradient)


def _swish_slope(make: Build, gate: ir.Value, y: ir.Value, alpha: float) -> ir.Value:
    """Return the slope of ``y = x gate`` with ``gate = sigmoid(alpha x)``."""
    rest = make.mul(y, make.sub(make.scalar(1.0, gate), gate))
    return make.add(gate, make.scaled(rest, alpha) if alpha != 1.0 else rest)


_ACTIVATIONS: dict[str, Callable[[Build, ir.Value, OpInfo], Activated]] = {
    "identity": _identity,
    "relu": _relu,
    "gelu": _gelu,
    "silu": _silu,
    "swiglu": _swiglu,
}
"""The activations of `MoE` by the attribute `activation_type`."""
