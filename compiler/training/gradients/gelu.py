"""Gradients of the Gaussian error linear unit (arXiv 1606.08415).

The unit is x times the cumulative normal distribution: exact or approximated, with or without a
bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects.build import Build
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_LINEAR, _CUBIC = math.sqrt(2.0 / math.pi), 0.044715 * math.sqrt(2.0 / math.pi)


@gradient("Gelu", "com.microsoft.Gelu")
def gelu(b: Backward) -> Gradients:
    """dY f'(X), f by the attribute ``approximate``."""
    slope = _tanh_slope if b.info.attribute("approximate", "none") == "tanh" else _erf_slope
    return [b.make.mul(b.dy, slope(b.make, b.operand(0)))]


@gradient("com.microsoft.BiasGelu")
def bias_gelu(b: Backward) -> Gradients:
    """dX = dY f'(X + bias); dbias is its sum."""
    return _bias_gradients(b, _erf_slope)


@gradient("com.microsoft.FastGelu")
def fast_gelu(b: Backward) -> Gradients:
    """dX = dY f'(X + bias) for the approximated f; dbias is its sum."""
    return _bias_gradients(b, _tanh_slope)


def _bias_gradients(b: Backward, slope: Callable[[Build, ir.Value], ir.Value]) -> Gradients:
    has_bias = b.has(1)
    x = b.make.add(b.operand(0), b.operand(1)) if has_bias else b.operand(0)
    dx = b.make.mul(b.dy, slope(b.make, x))
    return b.first(dx if b.wanted[0] else None, *([b.unbroadcast(dx, 1)] if has_bias else []))


def _erf_slope(make: Build, x: ir.Value) -> ir.Value:
    """Return F(x) + x F'(x), F(x) = (1 + erf(x / sqrt 2)) / 2."""
    s = make.scaled(x, math.sqrt(0.5))
    below = make.shifted(make.scaled(make.unary("Erf", s), 0.5), 0.5)
    bell = make.unary("Exp", make.unary("Neg", make.mul(s, s)))
    return make.add(below, make.mul(make.scaled(x, 1.0 / math.sqrt(2.0 * math.pi)), bell))


def _tanh_slope(make: Build, x: ir.Value) -> ir.Value:
    """Return (1 + t) / 2 + x (1 - t^2) u' / 2, t = tanh(u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    square = make.mul(x, x)
    inner = make.mul(x, make.shifted(make.scaled(square, _CUBIC), _LINEAR))
    t = make.unary("Tanh", inner)
    change = make.shifted(make.scaled(square, 3.0 * _CUBIC), _LINEAR)
    bell = make.sub(make.scalar(1.0, x), make.mul(t, t))
    rest = make.mul(make.mul(x, change), bell)
    return make.scaled(make.add(make.shifted(t, 1.0), rest), 0.5)
