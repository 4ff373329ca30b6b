"""Gradients of elementwise arithmetic and conversions, with broadcasting."""

from __future__ import annotations

from functools import reduce

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects.build import element_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import made_by

__all__: list[str] = []


@gradient("Add", "Sum")
def add(b: Backward) -> Gradients:
    """dY, summed over broadcast dimensions."""
    return [b.unbroadcast(b.dy, i) if want else None for i, want in enumerate(b.wanted)]


@gradient("Sub")
def sub(b: Backward) -> Gradients:
    """dA = dY and dB = -dY."""
    return [
        b.unbroadcast(b.dy, 0) if b.wanted[0] else None,
        b.make.unary("Neg", b.unbroadcast(b.dy, 1)) if b.wanted[1] else None,
    ]


@gradient("Mean")
def mean(b: Backward) -> Gradients:
    """dY / n for each of n operands."""
    share = b.make.scaled(b.dy, 1.0 / len(b.operands))
    return [b.unbroadcast(share, i) if want else None for i, want in enumerate(b.wanted)]


@gradient("Mul")
def mul(b: Backward) -> Gradients:
    """dA = dY B and dB = dY A."""
    return [
        b.unbroadcast(b.make.mul(b.dy, b.operand(1 - i)), i) if want else None
        for i, want in enumerate(b.wanted)
    ]


@gradient("Div")
def div(b: Backward) -> Gradients:
    """dA = dY / B and dB = -dA Y."""
    part = b.make.div(b.dy, b.operand(1))
    other = b.make.unary("Neg", b.make.mul(part, b.result())) if b.wanted[1] else None
    return [
        b.unbroadcast(part, 0) if b.wanted[0] else None,
        None if other is None else b.unbroadcast(other, 1),
    ]


@gradient("Pow")
def power(b: Backward) -> Gradients:
    """dA = dY B A^(B-1), 0 where B is 0; dB = dY Y log A, 0 where A is 0."""
    exponent = b.literal(1)
    if exponent is not None and exponent.size == 1:
        return b.first(_to_constant_power(b, float(exponent.reshape(-1)[0])))
    return [
        _power_of_base(b) if b.wanted[0] else None,
        _power_of_exponent(b) if b.wanted[1] else None,
    ]


def _to_constant_power(b: Backward, exponent: float) -> ir.Value:
    """Return dY n A^(n-1) for a number n; if n is 1/2, from the result."""
    make = b.make
    if exponent == 0.0:
        return b.unbroadcast(make.scaled(b.dy, 0.0), 0)
    if exponent == 1.0:
        return b.unbroadcast(b.dy, 0)
    scaled = make.scaled(b.dy, exponent)
    if exponent == 0.5:
        return b.unbroadcast(make.div(scaled, b.result()), 0)
    power = exponent - 1.0
    lowered = b.operand(0)
    if power != 1.0:
        lowered = make.binary("Pow", lowered, make.scalar(power, b.dy))
    return b.unbroadcast(make.mul(scaled, lowered), 0)


def _power_of_base(b: Backward) -> ir.Value:
    make = b.make
    exponent = make.cast(b.operand(1), element_type(b.dy))
    lowered = make.binary("Pow", b.operand(0), make.shifted(exponent, -1.0))
    is_zero = make.compare("Equal", exponent, make.scalar(0.0, exponent))
    factor = make.where(is_zero, make.scalar(0.0, exponent), make.mul(exponent, lowered))
    return b.unbroadcast(make.mul(b.dy, factor), 0)


def _power_of_exponent(b: Backward) -> ir.Value:
    make, base = b.make, b.operand(0)
    is_zero = make.compare("Equal", base, make.scalar(0.0, base))
    log = make.unary("Log", make.where(is_zero, make.scalar(1.0, base), base))
    change = make.mul(b.dy, make.mul(b.result(), log))
    return b.unbroadcast(make.cast(change, element_type(b.operands[1])), 1)


@gradient("Max", "Min")
def extreme(b: Backward) -> Gradients:
    """dY, divided equally among the operands that equal the result.

    No operand may equal it if a narrow result was rounded and ONNX Runtime compares unrounded
    values.
    """
    if len(b.operands) == 1:
        return [b.dy]
    make = b.make
    flags = [make.cast(_attains(b, i), element_type(b.dy)) for i in range(len(b.operands))]
    ties = reduce(make.add, flags)
    share = make.div(b.dy, make.binary("Max", ties, make.scalar(1.0, ties)))
    return [
        b.unbroadcast(make.mul(share, flag), i) if want else None
        for i, (flag, want) in enumerate(zip(flags, b.wanted, strict=True))
    ]


def _attains(b: Backward, index: int) -> ir.Value:
    """Return the mask where an operand is the result; of two operands, where it is no worse."""
    if len(b.operands) > 2:
        return b.make.compare("Equal", b.operand(index), b.result())
    order = "GreaterOrEqual" if b.info.name == "Max" else "LessOrEqual"
    return b.make.compare(order, b.operand(index), b.operand(1 - index))


@gradient("Where")
def where(b: Backward) -> Gradients:
    """dA = dY where the condition is true, dB = dY elsewhere, 0 otherwise."""
    make, zero = b.make, b.make.scalar(0.0, b.dy)
    chosen = make.where(b.operand(0), b.dy, zero) if b.wanted[1] else None
    other = make.where(b.operand(0), zero, b.dy) if b.wanted[2] else None
    return [
        None,
        None if chosen is None else b.unbroadcast(chosen, 1),
        None if other is None else b.unbroadcast(other, 2),
    ]


@gradient("Clip")
def clip(b: Backward) -> Gradients:
    """dY where the result is between the bounds; at a bound it is the gradient of the bound."""
    below, above = _at_bound(b, 1), _at_bound(b, 2)
    outside = [mask for mask in (below, above) if mask is not None]
    zero = b.make.scalar(0.0, b.dy)
    dx = reduce(lambda dy, mask: b.make.where(mask, zero, dy), outside, b.dy)
    masks = [None, below, above][: len(b.operands)]
    bounds = [
        b.unbroadcast(b.make.where(mask, b.dy, zero), i)
        if mask is not None and b.wanted[i]
        else None
        for i, mask in enumerate(masks)
        if i
    ]
    return [dx if b.wanted[0] else None, *bounds]


def _at_bound(b: Backward, index: int) -> ir.Value | None:
    """Return the mask where the result is bound ``index``, or ``None`` if that bound is absent."""
    return b.make.compare("Equal", b.result(), b.operand(index)) if b.has(index) else None


@gradient("Mod")
def mod(b: Backward) -> Gradients:
    """Y = A - B n, n being A / B rounded towards zero or down: dA = dY, dB = -dY n."""
    make = b.make
    dx = b.unbroadcast(b.dy, 0) if b.wanted[0] else None
    if not b.wanted[1]:
        return [dx, None]
    whole = make.div(make.sub(b.result(), b.operand(0)), b.operand(1))
    return [dx, b.unbroadcast(make.mul(b.dy, make.unary("Round", whole)), 1)]


@gradient("Cast", "CastLike")
def cast(b: Backward) -> Gradients:
    """dY, cast back; or the value before, if it was cast from the type of the operand."""
    element, earlier = element_type(b.operands[0]), made_by(b.dy, "Cast")
    if earlier is not None and element_type(earlier.operands[0]) == element:
        return b.first(earlier.operands[0])
    return b.first(b.make.cast(b.dy, element))


@gradient("Floor", "Ceil", "Round", "Sign")
def steps(b: Backward) -> Gradients:
    """None: the derivative is 0 wherever it exists."""
    return b.first(None)
