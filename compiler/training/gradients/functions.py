"""Gradients of elementwise functions of one argument: dX = dY f'(X)."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@gradient("Neg")
def neg(b: Backward) -> Gradients:
    """-dY."""
    return [b.make.unary("Neg", b.dy)]


@gradient("Abs")
def absolute(b: Backward) -> Gradients:
    """dY sign(X)."""
    return [b.make.mul(b.dy, b.make.unary("Sign", b.operand(0)))]


@gradient("Exp")
def exp(b: Backward) -> Gradients:
    """dY Y."""
    return [b.make.mul(b.dy, b.result())]


@gradient("Log")
def log(b: Backward) -> Gradients:
    """dY / X."""
    return [b.make.div(b.dy, b.operand(0))]


@gradient("Sqrt")
def sqrt(b: Backward) -> Gradients:
    """dY / 2Y."""
    return [b.make.div(b.make.scaled(b.dy, 0.5), b.result())]


@gradient("Reciprocal")
def reciprocal(b: Backward) -> Gradients:
    """-dY Y^2."""
    square = b.make.mul(b.result(), b.result())
    return [b.make.unary("Neg", b.make.mul(b.dy, square))]


@gradient("Erf")
def erf(b: Backward) -> Gradients:
    """dY 2/sqrt(pi) exp(-X^2)."""
    make, x = b.make, b.operand(0)
    bell = make.unary("Exp", make.unary("Neg", make.mul(x, x)))
    return [make.mul(make.scaled(b.dy, 1.1283791670955126), bell)]


@gradient("Sin")
def sin(b: Backward) -> Gradients:
    """dY cos X."""
    return [b.make.mul(b.dy, b.make.unary("Cos", b.operand(0)))]


@gradient("Cos")
def cos(b: Backward) -> Gradients:
    """-dY sin X."""
    return [b.make.unary("Neg", b.make.mul(b.dy, b.make.unary("Sin", b.operand(0))))]


@gradient("Tan")
def tan(b: Backward) -> Gradients:
    """dY (1 + Y^2)."""
    return [b.make.mul(b.dy, b.make.shifted(_square(b, b.result()), 1.0))]


@gradient("Sinh")
def sinh(b: Backward) -> Gradients:
    """dY cosh X."""
    return [b.make.mul(b.dy, b.make.unary("Cosh", b.operand(0)))]


@gradient("Cosh")
def cosh(b: Backward) -> Gradients:
    """dY sinh X."""
    return [b.make.mul(b.dy, b.make.unary("Sinh", b.operand(0)))]


@gradient("Tanh")
def tanh(b: Backward) -> Gradients:
    """dY (1 - Y^2)."""
    return [b.make.mul(b.dy, _subtract_from(b, 1.0, _square(b, b.result())))]


@gradient("Asin")
def asin(b: Backward) -> Gradients:
    """dY / sqrt(1 - X^2)."""
    return [_over_root(b)]


@gradient("Acos")
def acos(b: Backward) -> Gradients:
    """-dY / sqrt(1 - X^2)."""
    return [b.make.unary("Neg", _over_root(b))]


@gradient("Atan")
def atan(b: Backward) -> Gradients:
    """dY / (1 + X^2)."""
    return [b.make.div(b.dy, b.make.shifted(_square(b, b.operand(0)), 1.0))]


@gradient("Asinh")
def asinh(b: Backward) -> Gradients:
    """dY / sqrt(X^2 + 1)."""
    return [b.make.div(b.dy, _root(b, 1.0))]


@gradient("Acosh")
def acosh(b: Backward) -> Gradients:
    """dY / sqrt(X^2 - 1)."""
    return [b.make.div(b.dy, _root(b, -1.0))]


@gradient("Atanh")
def atanh(b: Backward) -> Gradients:
    """dY / (1 - X^2)."""
    return [b.make.div(b.dy, _subtract_from(b, 1.0, _square(b, b.operand(0))))]


def _square(b: Backward, x: ir.Value) -> ir.Value:
    return b.make.mul(x, x)


def _subtract_from(b: Backward, number: float, x: ir.Value) -> ir.Value:
    """Return ``number - x``."""
    return b.make.sub(b.make.scalar(number, x), x)


def _over_root(b: Backward) -> ir.Value:
    """Return dY / sqrt(1 - X^2)."""
    return b.make.div(b.dy, b.make.unary("Sqrt", _subtract_from(b, 1.0, _square(b, b.operand(0)))))


def _root(b: Backward, term: float) -> ir.Value:
    """Return sqrt(X^2 + term)."""
    return b.make.unary("Sqrt", b.make.shifted(_square(b, b.operand(0)), term))
