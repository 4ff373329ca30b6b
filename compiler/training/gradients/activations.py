"""Gradients of activation functions.

They read the result if it is sufficient, since the next product saves it for its own gradient.
"""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


@gradient("Relu")
def relu(b: Backward) -> Gradients:
    """dY where Y > 0."""
    zero = b.make.scalar(0.0, b.dy)
    return [b.make.where(b.make.compare("Greater", b.result(), zero), b.dy, zero)]


@gradient("LeakyRelu")
def leaky_relu(b: Backward) -> Gradients:
    """dY where X > 0, alpha dY elsewhere; Y has the sign of X unless alpha < 0."""
    alpha = b.info.attribute("alpha", 0.01)
    sign = b.result() if alpha >= 0 else b.operand(0)
    return [_where_positive(b, sign, b.dy, b.make.scaled(b.dy, alpha))]


@gradient("PRelu")
def prelu(b: Backward) -> Gradients:
    """dX = dY where X > 0 and slope dY elsewhere; dslope = X dY where X <= 0."""
    make, x, zero = b.make, b.operand(0), b.make.scalar(0.0, b.dy)
    dx = slope = None
    if b.wanted[0]:
        dx = _where_positive(b, x, b.dy, make.mul(b.dy, b.operand(1)))
    if b.wanted[1]:
        slope = b.unbroadcast(_where_positive(b, x, zero, make.mul(b.dy, x)), 1)
    return [dx, slope]


@gradient("ThresholdedRelu")
def thresholded_relu(b: Backward) -> Gradients:
    """dY where X > alpha."""
    alpha = b.make.scalar(b.info.attribute("alpha", 1.0), b.dy)
    passed = b.make.compare("Greater", b.operand(0), alpha)
    return [b.make.where(passed, b.dy, b.make.scalar(0.0, b.dy))]


@gradient("Shrink")
def shrink(b: Backward) -> Gradients:
    """dY where |X| > lambd."""
    bound = b.make.scalar(b.info.attribute("lambd", 0.5), b.dy)
    passed = b.make.compare("Greater", b.make.unary("Abs", b.operand(0)), bound)
    return [b.make.where(passed, b.dy, b.make.scalar(0.0, b.dy))]


@gradient("Elu")
def elu(b: Backward) -> Gradients:
    """dY where X > 0, dY alpha exp(X) = dY (Y + alpha) elsewhere."""
    alpha = b.info.attribute("alpha", 1.0)
    if alpha < 0:
        below = b.make.scaled(b.make.unary("Exp", b.operand(0)), alpha)
        return [_where_positive(b, b.operand(0), b.dy, b.make.mul(b.dy, below))]
    below = b.make.mul(b.dy, b.make.shifted(b.result(), alpha))
    return [_where_positive(b, b.result(), b.dy, below)]


@gradient("Selu")
def selu(b: Backward) -> Gradients:
    """gamma dY where X > 0, dY gamma alpha exp(X) = dY (Y + gamma alpha) elsewhere."""
    make = b.make
    gamma = b.info.attribute("gamma", _SELU_GAMMA)
    alpha = b.info.attribute("alpha", _SELU_ALPHA)
    below = make.mul(b.dy, make.shifted(b.result(), gamma * alpha))
    sign = b.result() if gamma > 0 and alpha > 0 else b.operand(0)
    return [_where_positive(b, sign, make.scaled(b.dy, gamma), below)]


@gradient("Celu")
def celu(b: Backward) -> Gradients:
    """dY where X > 0, dY exp(X / alpha) = dY (Y / alpha + 1) elsewhere."""
    alpha = b.info.attribute("alpha", 1.0)
    below = b.make.shifted(b.make.scaled(b.result(), 1.0 / alpha), 1.0)
    return [_where_positive(b, b.result(), b.dy, b.make.mul(b.dy, below))]


@gradient("Sigmoid")
def sigmoid(b: Backward) -> Gradients:
    """dY Y (1 - Y)."""
    make, y = b.make, b.result()
    return [make.mul(b.dy, make.mul(y, make.sub(make.scalar(1.0, y), y)))]


@gradient("HardSigmoid")
def hard_sigmoid(b: Backward) -> Gradients:
    """alpha dY where 0 < Y < 1."""
    make, y, zero = b.make, b.result(), b.make.scalar(0.0, b.dy)
    above = make.compare("Greater", y, make.scalar(0.0, y))
    below = make.compare("Less", y, make.scalar(1.0, y))
    inside = make.where(above, make.scaled(b.dy, b.info.attribute("alpha", 0.2)), zero)
    return [make.where(below, inside, zero)]


@gradient("Softplus")
def softplus(b: Backward) -> Gradients:
    """dY exp(X) / (1 + exp(X)) = dY (1 - exp(-Y))."""
    make, y = b.make, b.result()
    rest = make.unary("Exp", make.unary("Neg", y))
    return [make.mul(b.dy, make.sub(make.scalar(1.0, y), rest))]


@gradient("Softsign")
def softsign(b: Backward) -> Gradients:
    """dY / (1 + |X|)^2 = dY (1 - |Y|)^2."""
    make, y = b.make, b.result()
    rest = make.sub(make.scalar(1.0, y), make.unary("Abs", y))
    return [make.mul(b.dy, make.mul(rest, rest))]


@gradient("HardSwish")
def hard_swish(b: Backward) -> Gradients:
    """dY where X >= 3, 0 where X <= -3, dY (X / 3 + 1/2) between."""
    make, x = b.make, b.operand(0)
    zero = make.scalar(0.0, x)
    slope = make.shifted(make.scaled(x, 1.0 / 3.0), 0.5)
    above = make.compare("GreaterOrEqual", x, make.scalar(3.0, x))
    below = make.compare("LessOrEqual", x, make.scalar(-3.0, x))
    inner = make.where(above, b.dy, make.mul(b.dy, slope))
    return [make.where(below, zero, inner)]


@gradient("Swish", "com.microsoft.QuickGelu")
def swish(b: Backward) -> Gradients:
    """Y = X s with s = sigmoid(alpha X): dY (s + alpha Y (1 - s))."""
    make = b.make
    alpha = b.info.attribute("alpha", 1.0 if b.info.name == "Swish" else 1.702)
    s = make.unary("Sigmoid", make.scaled(b.operand(0), alpha))
    rest = make.mul(b.result(), make.sub(make.scalar(alpha, s), make.scaled(s, alpha)))
    return [make.mul(b.dy, make.add(s, rest))]


@gradient("Mish")
def mish(b: Backward) -> Gradients:
    """Y = X t with t = tanh(softplus(X)): dY (t + X (1 - t^2) sigmoid(X))."""
    make, x = b.make, b.operand(0)
    one = make.scalar(1.0, x)
    t = make.unary("Tanh", make.unary("Softplus", x))
    slope = make.mul(make.sub(one, make.mul(t, t)), make.unary("Sigmoid", x))
    return [make.mul(b.dy, make.add(t, make.mul(x, slope)))]


def _where_positive(b: Backward, sign: ir.Value, dy: ir.Value, other: ir.Value) -> ir.Value:
    positive = b.make.compare("Greater", sign, b.make.scalar(0.0, sign))
    return b.make.where(positive, dy, other)
