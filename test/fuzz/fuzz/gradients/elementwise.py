"""Functions of single elements, and of several broadcast together."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fuzz.gradients.draft import Draft, UnfitError, Value, away, inside, maker

__all__ = ["condition"]

_Torch = Callable[..., Any]

# With a kernel in float64; where they are defined, and where they have kinks.
_SMOOTH: dict[str, tuple[_Torch, float, float, tuple[float, ...]]] = {
    "Abs": (torch.abs, -40, 40, (0,)),
    "Ceil": (torch.ceil, -4.9, 5, tuple(range(-5, 6))),
    "Cos": (torch.cos, -40, 40, ()),
    "Exp": (torch.exp, -9, 3, ()),
    "Floor": (torch.floor, -4.9, 5, tuple(range(-5, 6))),
    "Identity": (torch.clone, -40, 40, ()),
    "Log": (torch.log, 0.1, 40, ()),
    "Neg": (torch.neg, -40, 40, ()),
    "Reciprocal": (torch.reciprocal, 0.2, 40, ()),
    "Relu": (torch.relu, -40, 40, (0,)),
    "Round": (torch.round, -4.9, 5, tuple(n / 2 for n in range(-10, 11))),
    "Sigmoid": (torch.sigmoid, -40, 40, ()),
    "Sign": (torch.sign, -40, 40, (0,)),
    "Sin": (torch.sin, -40, 40, ()),
    "Sqrt": (torch.sqrt, 0.1, 40, ()),
    "Tan": (torch.tan, -1.2, 1.2, ()),
    "Tanh": (torch.tanh, -40, 40, ()),
}

# Those that ONNX Runtime has no kernels for in newer versions of the standard.
_OLD = {
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cosh",
    "Sinh",
    "Softplus",
    "Softsign",
    "Tan",
}
_NEW = 22

# Without one.
_NARROW: dict[str, tuple[_Torch, float, float, tuple[float, ...]]] = {
    "Acos": (torch.acos, -0.9, 0.9, ()),
    "Asin": (torch.asin, -0.9, 0.9, ()),
    "Erf": (torch.erf, -40, 40, ()),
    "Acosh": (torch.acosh, 1.1, 5, ()),
    "Asinh": (torch.asinh, -40, 40, ()),
    "Atan": (torch.atan, -40, 40, ()),
    "Atanh": (torch.atanh, -0.9, 0.9, ()),
    "Cosh": (torch.cosh, -3, 3, ()),
    "HardSwish": (functional.hardswish, -40, 40, (-3, 3)),
    "Mish": (functional.mish, -40, 40, ()),
    "Sinh": (torch.sinh, -3, 3, ()),
    "Softplus": (functional.softplus, -15, 15, ()),
    "Softsign": (functional.softsign, -40, 40, ()),
}


@maker(4)
def smooth(d: Draft) -> None:
    _unary(d, _SMOOTH)


@maker(1, narrow=True)
def smooth_in_float32(d: Draft) -> None:
    _unary(d, _NARROW)


def _unary(d: Draft, table: dict[str, tuple[_Torch, float, float, tuple[float, ...]]]) -> None:
    op_type = d.choice([n for n in table if d.opset < _NEW or n not in _OLD])
    function, low, high, kinks = table[op_type]
    x = d.within(low, high)
    away(x.tensor, *kinks)
    d.add(op_type, [x], function)


@maker(2, narrow=True)
def activations(d: Draft) -> None:
    """Functions with attributes, sometimes of a sign that nobody gives them."""
    x, a = d.pick(), d.number(0.1, 1.5) * (-1 if d.chance(0.2) else 1)
    away(x.tensor, 0)
    held = {"alpha": a}
    gamma = d.number(0.5, 1.5)
    options: dict[str, tuple[_Torch, dict[str, float]]] = {
        "Elu": (lambda x: torch.where(x > 0, x, a * torch.expm1(x)), held),
        "LeakyRelu": (lambda x: torch.where(x > 0, x, a * x), held),
        "Celu": (lambda x: torch.celu(x, abs(a)), {"alpha": abs(a)}),
        "Selu": (
            lambda x: gamma * torch.where(x > 0, x, a * torch.expm1(x)),
            {**held, "gamma": gamma},
        ),
    }
    op_type = d.choice(list(options))
    if op_type in ("Elu", "Selu", "Celu") and not inside(x, -8, 8):
        raise UnfitError
    d.add(op_type, [x], *options[op_type])


@maker(1, narrow=True)
def activations_with_kinks(d: Draft) -> None:
    x, a, b = d.pick(), d.number(0.2, 1), d.number(0.1, 0.6)
    op_type = d.choice(["HardSigmoid", "ThresholdedRelu", "Shrink"])
    if op_type == "HardSigmoid":
        away(x.tensor, -b / a, (1 - b) / a)
        held = {"alpha": a, "beta": b}
        d.add(op_type, [x], lambda x: (a * x + b).clamp(0, 1), held)
    elif op_type == "ThresholdedRelu":
        away(x.tensor, a)
        d.add(op_type, [x], lambda x: torch.where(x > a, x, 0), {"alpha": a})
    else:
        away(x.tensor, a, -a)
        shrunk: _Torch = lambda x: torch.where(x > a, x - b, torch.where(x < -a, x + b, 0))  # noqa: E731
        d.add(op_type, [x], shrunk, {"lambd": a, "bias": b})


@maker(0.7, narrow=True)
def gelus(d: Draft) -> None:
    x, how = d.pick(range(1, 5)), d.choice(["none", "tanh"])
    kind = d.choice(["Gelu", "com.microsoft.Gelu", "FastGelu", "QuickGelu", "BiasGelu"])
    if kind == "Gelu":
        d.add("Gelu", [x], lambda x: functional.gelu(x, approximate=how), {"approximate": how})
    elif kind == "com.microsoft.Gelu":
        d.add("Gelu", [x], functional.gelu, domain="com.microsoft")
    elif kind == "QuickGelu":
        a = d.number(0.5, 2)
        d.add(kind, [x], lambda x: x * torch.sigmoid(a * x), {"alpha": a}, domain="com.microsoft")
    else:
        _biased_gelu(d, kind)


def _biased_gelu(d: Draft, kind: str) -> None:
    x, how = d.pick(range(1, 5)), "tanh" if kind == "FastGelu" else "none"
    bias = None if kind == "FastGelu" and d.chance(0.3) else d.like(x.shape[-1:])
    d.add(
        kind, [x] if bias is None else [x, bias],
        lambda x, b=0: functional.gelu(x + b, approximate=how), domain="com.microsoft",
    )  # fmt: skip


@maker(5)
def arithmetic(d: Draft) -> None:
    op_type = d.choice(["Add", "Sub", "Mul", "Div"])
    x = d.pick()
    y = x if d.chance(0.05) else d.beside(x)
    if op_type == "Div":
        y = d.within(0.3, 3, y)
    x, y = (y, x) if op_type != "Div" and d.chance(0.3) else (x, y)
    d.add(op_type, [x, y], getattr(torch, op_type.lower()))


@maker(1.5)
def variadic(d: Draft) -> None:
    names = ["Sum", "Max", "Min"] + ["Mean"] * (d.dtype == "float32")
    op_type, x = d.choice(names), d.pick()
    others = [d.beside(x, stretch=i == 0) for i in range(d.whole(0, 2))]
    values = [x, *others, *([x] if d.chance(0.1) and op_type in ("Sum", "Mean") else [])]
    if op_type in ("Max", "Min"):
        _apart(values)
    pairwise = {"Sum": torch.add, "Mean": torch.add, "Max": torch.maximum, "Min": torch.minimum}
    function = pairwise[op_type]
    share = len(values) if op_type == "Mean" else 1
    d.add(op_type, values, lambda *xs: reduce(function, xs) / share)


def _apart(values: list[Value]) -> None:
    """Raise `UnfitError` where elements that are compared are close."""
    for i, a in enumerate(values):
        for b in values[:i]:
            try:
                away(a.tensor - b.tensor, 0)
                if bool((a.tensor == b.tensor).any()) and len(values) > 2:
                    raise UnfitError
            except RuntimeError:
                raise UnfitError from None


@maker(1)
def power(d: Draft) -> None:
    base = d.within(0.3, 3)
    if d.chance(0.5):
        exponent = d.choice([0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -0.5, 1.7])
        kind = d.choice([d.dtype, "int64" if exponent == int(exponent) else d.dtype])
        held = d.leaf(d.literals, "c", np.array(exponent, kind))
        d.add("Pow", [base, held], torch.pow)
    else:
        d.add("Pow", [base, d.beside(base)], torch.pow)


@maker(0.5)
def whole_power(d: Draft) -> None:
    """Of any number, also of zero."""
    x, n = d.pick(), d.whole(0, 3)
    d.add("Pow", [x, d.fixed(float(n))], lambda x, _: x**n)


@maker(0.6)
def remainder(d: Draft) -> None:
    x = d.pick()
    y = d.within(0.5, 2, d.beside(x, stretch=False))
    away(x.tensor / y.tensor, *range(-30, 31), by=1e-2)
    if bool((x.tensor == 0).any()):
        raise UnfitError
    d.add("Mod", [x, y], torch.fmod, {"fmod": 1})


@maker(1)
def clip(d: Draft) -> None:
    x = d.pick()
    low, high = sorted(d.rng.uniform(-1.5, 1.5, 2))
    bounds: list[Value | None] = []
    for bound in (low, high):
        kind = d.whole(0, 2)
        bounds.append(
            None if kind == 0 else d.fixed(bound) if kind == 1 else d.scalar(bound, bound)
        )
    for bound in filter(None, bounds):
        away(x.tensor, float(bound.tensor))
        if bool((x.tensor == bound.tensor).any()):
            raise UnfitError
    d.add("Clip", [x, *bounds], _clipped)


def _clipped(x: Any, low: Any, high: Any) -> Any:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@maker(0.7, narrow=True)
def prelu(d: Draft) -> None:
    x = d.pick()
    away(x.tensor, 0)
    slope = d.beside(x, stretch=False)
    if slope.rank > x.rank:
        raise UnfitError
    d.add("PRelu", [x, slope], lambda x, s: torch.where(x > 0, x, s * x))


def condition(d: Draft, shape: list[int]) -> Value:
    """Return truth values that broadcast to ``shape``: a constant, or what comparisons give."""
    if d.chance(0.4):
        own = [1 if d.chance(0.3) else n for n in shape][d.whole(0, len(shape)) :]
        return d.leaf(d.choice([d.literals, d.weights, d.inputs]), "t", d.rng.random(own) < 0.5)
    x = d.like(shape)
    if d.chance(0.2):
        away(x.tensor, 0)
        return d.add("Cast", [x], lambda x: x != 0, {"to": 9})  # type: ignore[no-any-return]
    op_type = d.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    y = d.beside(x, stretch=False)
    _apart([x, y])
    compare = {"Less": torch.lt, "Greater": torch.gt, "LessOrEqual": torch.le,
               "GreaterOrEqual": torch.ge}  # fmt: skip
    found = d.add(op_type, [x, y], compare[op_type])
    return d.add("Not", [found], torch.logical_not) if d.chance(0.2) else found  # type: ignore[no-any-return]


@maker(1.5)
def where(d: Draft) -> None:
    x = d.pick()
    y = d.beside(x)
    whole = list(torch.broadcast_shapes(x.shape, y.shape))
    first = condition(d, whole)
    if d.chance(0.2):
        second = condition(d, whole)
        op_type = d.choice(["And", "Or", "Xor"])
        first = d.add(op_type, [first, second], getattr(torch, f"logical_{op_type.lower()}"))
    d.add("Where", [first, x, y], torch.where)


@maker(0.6)
def casts(d: Draft) -> None:
    """To another floating point type and back, or to whole numbers, which have no gradient."""
    x = d.pick()
    back = {"to": 1 if d.dtype == "float32" else 11}
    if d.chance(0.5):
        wide = d.add("Cast", [x], lambda x: x.clone(), {"to": 11})
        d.add("Cast", [wide], lambda x: x.clone(), back)
        d.foreign.add(wide.name)
        return
    away(x.tensor, *range(-40, 41))
    cut = d.add("Cast", [x], lambda x: x.long(), {"to": 7})
    d.add("Cast", [cut], lambda i, x: i.to(x.dtype), back, captured=[x])


@maker(0.3)
def cast_like(d: Draft) -> None:
    x = d.pick()
    d.add("CastLike", [x, d.pick()], lambda x, _: x.clone())


@maker(0.3)
def dropout(d: Draft) -> None:
    """One that drops nothing; what it drops otherwise is not what PyTorch drops."""
    x, zero = d.pick(), d.fixed(0.0)
    training = d.leaf(d.literals, "t", np.array(True))
    operands = [x, zero, training] if d.chance(0.5) else [x, zero]
    d.add_many("Dropout", operands, lambda x, *_: [x.clone()])
