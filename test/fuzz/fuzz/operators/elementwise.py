"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

import numpy as np

from fuzz.builder import FLOATS, INTEGERS, Builder, UnsuitableError, Value
from fuzz.operators.registry import maker

SMOOTH = ("Exp", "Tanh", "Sigmoid", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Atan", "Selu",
          "Elu", "Celu", "HardSigmoid", "HardSwish", "Sinh", "Asinh", "Reciprocal", "Sqrt", "Log",
          "Mish", "Gelu", "Cosh", "Acos", "Asin", "Acosh", "Atanh", "Tan")  # fmt: skip
KEEPING = ("Relu", "Neg", "Abs", "Identity", "LeakyRelu", "Sign", "Clip", "ThresholdedRelu")
JUMPS = ("Floor", "Ceil", "Round", "Sign")


def partner(b: Builder, x: Value, chance: float = 0.5) -> Value:
    """Return another operand for ``x``: of the graph, or a weight whose shape broadcasts."""
    if b.flip(chance):
        return b.pick(lambda v: v.dtype == x.dtype and broadcasts(v.shape, x.shape))
    shape = tuple(1 if b.flip(0.25) else n for n in x.shape)[b.integer(0, x.rank):]  # fmt: skip
    if b.flip(0.1):
        shape = (1,) * (x.rank - len(shape) + 1) + shape
    return b.weight(shape, x.dtype, exact=x.bits is not None)


def broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    pairs = zip(one[::-1], other[::-1], strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def ordered(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    return (y, x) if b.flip() else (x, y)


@maker(2.0)
def smooth(b: Builder) -> None:
    b.add(b.choose(SMOOTH), b.float())


@maker(2.0)
def keeping(b: Builder) -> None:
    kind, x = b.choose(KEEPING), b.pick(lambda v: v.dtype != "bool")
    if kind == "Clip":
        bounds = [b.numbers_of(n, x.dtype) if b.flip(0.7) else None for n in (0, 3)]
        b.add("Clip", x, *bounds, exact="move")
    elif kind == "LeakyRelu":
        b.add(kind, x, alpha=0.5, exact="linear")
    else:
        b.add(kind, x, exact="jump" if kind in ("Sign", "ThresholdedRelu") else "move")


@maker(1.0)
def jumping(b: Builder) -> None:
    b.add(b.choose(JUMPS), b.float(), exact="jump")


@maker(5.0)
def arithmetic(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype != "bool")
    b.add(b.choose(("Add", "Sub", "Mul")), *ordered(b, x, partner(b, x)), exact="linear")


@maker(1.0)
def division(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype != "bool")
    if x.is_float:
        above, below = ordered(b, x, partner(b, x))
        if np.signbit(below.array[below.array == 0]).any():  # a sum with 0 is 0 and not -0
            raise UnsuitableError("the sign of an infinity hangs on that of a zero")
        b.add("Div", above, below)
        return
    y = b.constant(b.rng.integers(1, 4, b.last_of(x)).astype(x.dtype))
    b.add(b.choose(("Div", "Mod")), x, y)


@maker(0.5)
def modulus(b: Builder) -> None:
    x = b.float()
    y = b.constant(b.rng.integers(1, 4, b.last_of(x)).astype(x.dtype))
    b.add("Mod", x, y, fmod=1, exact="jump")


@maker(0.7)
def power(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "float64", "int32", "int64"))
    kind = b.choose((x.dtype, "int64", "float32"))
    b.add("Pow", x, b.numbers_of(b.choose([e for e in range(4) if _fits(x, e)]), kind))


def _fits(x: Value, exponent: int) -> bool:
    """Say whether a power of integers can be held: what comes of one that cannot is undefined."""
    if x.is_float:
        return True
    largest = max((abs(int(number)) for number in x.array.reshape(-1)), default=0)
    return largest**exponent <= np.iinfo(x.dtype).max >> 1 and largest**exponent < 2**53


@maker(1.5)
def several(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype != "bool")
    kind = b.choose(("Max", "Min", "Sum", "Mean"))
    others = [partner(b, x) for _ in range(b.integer(0, 2))]
    exact = {"Max": "move", "Min": "move", "Sum": "linear", "Mean": "no"}[kind]
    b.add(kind, x, *others, exact=exact)


@maker(1.5)
def comparison(b: Builder) -> None:
    kind = b.choose(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    x = b.pick(lambda v: v.bits is not None)
    b.add(kind, *ordered(b, x, partner(b, x)), exact="jump")


@maker(0.7)
def logic(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype == "bool")
    if b.flip(0.3):
        b.add("Not", x)
    else:
        b.add(b.choose(("And", "Or", "Xor")), *ordered(b, x, partner(b, x)))


@maker(0.5)
def bitwise(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in INTEGERS)
    if x.dtype == "uint8" and b.flip():
        shift = b.constant(b.rng.integers(0, 3, x.shape).astype(x.dtype))
        b.add("BitShift", x, shift, direction=b.choose(("LEFT", "RIGHT")))
    elif b.flip(0.2):
        b.add("BitwiseNot", x)
    else:
        kind = b.choose(("BitwiseAnd", "BitwiseOr", "BitwiseXor"))
        b.add(kind, *ordered(b, x, partner(b, x)))


@maker(2.0)
def where(b: Builder) -> None:
    x = b.pick()
    y = partner(b, x)
    if b.flip():
        shape = b.last_of(x)
        condition = b.constant(b.numbers(shape, "bool", exact=True))
    else:
        condition = b.pick(lambda v: v.dtype == "bool" and broadcasts(v.shape, x.shape))
    b.add("Where", condition, *ordered(b, x, y), exact="move")


@maker(2.0)
def cast(b: Builder) -> None:
    x, to = b.pick(), b.choose((*FLOATS, *INTEGERS, "bool"))
    if x.is_float and to not in FLOATS and np.any(np.abs(x.array) > 100):
        raise UnsuitableError("what does not fit is cast as the machine likes")
    if x.is_float and to == "uint8" and np.any(x.array < 0):
        raise UnsuitableError("what does not fit is cast as the machine likes")
    number = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9,
              "float16": 10, "float64": 11}[to]  # fmt: skip
    if b.opset >= 15 and b.flip(0.2):
        b.add("CastLike", x, b.pick(lambda v: v.dtype == to), exact="jump")
    else:
        b.add("Cast", x, to=number, exact="move" if to in FLOATS else "jump")


@maker(0.4)
def tests(b: Builder) -> None:
    b.add(b.choose(("IsNaN", "IsInf")), b.float())


@maker(0.5)
def parametric(b: Builder) -> None:
    x = b.float(least=1)
    slope = b.weight(tuple(1 if b.flip() else n for n in x.shape[1:]), x.dtype)
    b.add("PRelu", x, slope, exact="linear")


@maker(0.3)
def dropping(b: Builder) -> None:
    ratio = b.numbers_of(0.5, "float32") if b.flip() else None
    training = b.numbers_of(False, "bool") if b.flip() else None
    results = 2 if b.flip() else 1
    b.add("Dropout", b.float(), ratio, training, results=results, exact="move")


@maker(0.3)
def shrinking(b: Builder) -> None:
    b.add("Shrink", b.float(), lambd=1.0, bias=0.5, exact="jump")
