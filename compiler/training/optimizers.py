"""The update of one parameter, built from elementwise ONNX operators.

Factors that all parameters share are computed once per step, to minimise the number of passes over
each parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tensoropt.compiler.training.spec import Optimizer
from tensoropt.dialects.build import Build, element_type
from tensoropt.dialects.mlir import ir

__all__ = ["MOMENTS", "Scalar", "Scalars", "update"]

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("velocity",),
    "adam": ("mean", "variance"),
    "adamw": ("mean", "variance"),
}
"""Optimizer state per parameter, in the parameter's shape and initially zero."""

Moments = Mapping[str, ir.Value]
Scalar = float | ir.Value
"""A Python number, or a float64 scalar in the graph."""


class Scalars:
    """The scalars of a step, each computed once, in float64: 1 - beta^step cancels in float32.

    ``rate`` is the learning rate and ``step`` counts from 1; both are float32 values in the graph.
    Every gradient is multiplied by ``factor``.
    """

    def __init__(
        self, make: Build, rate: ir.Value, step: ir.Value | None = None, factor: Scalar = 1.0
    ) -> None:
        self._make, self._step = make, step
        self._shared: dict[str, Scalar] = {}
        self._typed: dict[tuple[str, ir.Type], ir.Value] = {}
        self.rate: Scalar = self.wide(rate)
        self.factor = factor

    def wide(self, x: ir.Value) -> ir.Value:
        """Return a graph scalar in float64."""
        return self._make.cast(x, ir.F64Type.get())

    def value(self, x: Scalar) -> ir.Value:
        """Return a float64 value in the graph."""
        if not isinstance(x, float):
            return x
        import numpy as np

        return self._make.constant(np.array(x, np.float64))

    def op(self, op_type: str, a: Scalar, b: Scalar) -> ir.Value:
        """Return a new scalar from two: Add, Sub, Mul, Div, Pow or Min."""
        return self._make.binary(op_type, self.value(a), self.value(b))

    def times(self, *factors: Scalar) -> Scalar:
        """Return a product; Python numbers are multiplied at build time."""
        number = math.prod(x for x in factors if isinstance(x, float))
        result: Scalar | None = None
        for x in (x for x in factors if not isinstance(x, float)):
            result = x if result is None else self.op("Mul", result, x)
        if result is None or number == 1.0:
            return float(number) if result is None else result
        return self.op("Mul", result, number)

    def correction(self, beta: float) -> ir.Value:
        """Return ``1 - beta^step``."""
        given = self._step
        assert given is not None, "only an optimizer that counts steps corrects by them"
        step = self._memoize("step", lambda: self.wide(given))
        return self.op("Sub", 1.0, self.op("Pow", beta, step))

    def root(self, x: ir.Value) -> ir.Value:
        """Return the square root of a graph value."""
        return self._make.unary("Sqrt", x)

    def root_correction(self, beta: float) -> Scalar:
        """Return the square root of ``1 - beta^step``."""
        return self._memoize("root", lambda: self.root(self.correction(beta)))

    def get(self, name: str, like: ir.Value, formula: Callable[[Scalars], Scalar]) -> ir.Value:
        """Return ``formula(self)`` in ``like``'s element type, memoized by ``name`` and type."""
        key = (name, element_type(like))
        wide = self._memoize(name, lambda: formula(self))
        if key not in self._typed:
            self._typed[key] = (
                self._make.scalar(wide, like)
                if isinstance(wide, float)
                else self._make.cast(wide, element_type(like))
            )
        return self._typed[key]

    def _memoize(self, name: str, make: Callable[[], Scalar]) -> Scalar:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]


def update(
    make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value, g: ir.Value, moments: Moments
) -> tuple[ir.Value, Moments]:
    """Return the new parameter and moments for the gradient ``g``, all of one shape.

    ``g`` is not yet multiplied by ``scalars.factor``.
    """
    return _UPDATES[optimizer.name](make, optimizer, scalars, w, g, moments)


def _sgd(
    make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value, g: ir.Value, moments: Moments
) -> tuple[ir.Value, Moments]:
    change = make.mul(g, scalars.get("change", w, lambda s: s.times(s.rate, s.factor)))
    return make.sub(_shrink(make, optimizer, scalars, w), change), {}


def _momentum(
    make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value, g: ir.Value, moments: Moments
) -> tuple[ir.Value, Moments]:
    g = _add_decay(make, optimizer, scalars, w, g)
    old = make.mul(moments["velocity"], scalars.get("momentum", w, lambda s: optimizer.momentum))
    velocity = make.add(old, g)
    change = make.mul(velocity, scalars.get("rate", w, lambda s: s.rate))
    return make.sub(w, change), {"velocity": velocity}


def _adam(
    make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value, g: ir.Value, moments: Moments
) -> tuple[ir.Value, Moments]:
    if not optimizer.weight_decay:
        return _adamw(make, optimizer, scalars, w, g, moments)
    g = _add_decay(make, optimizer, scalars, w, g)
    change, moments = _adam_change(make, optimizer, scalars, g, 1.0, moments)
    return make.sub(w, change), moments


def _adamw(
    make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value, g: ir.Value, moments: Moments
) -> tuple[ir.Value, Moments]:
    change, moments = _adam_change(make, optimizer, scalars, g, scalars.factor, moments)
    return make.sub(_shrink(make, optimizer, scalars, w), change), moments


def _adam_change(
    make: Build,
    optimizer: Optimizer,
    scalars: Scalars,
    g: ir.Value,
    factor: Scalar,
    moments: Moments,
) -> tuple[ir.Value, Moments]:
    """Return the change and the new moments: Kingma and Ba (arXiv 1412.6980), section 2.

    The efficient order: rate sqrt(c2)/c1 mean / (sqrt(variance) + epsilon sqrt(c2)), with c = 1 -
    beta^step. The gradient is multiplied by ``factor`` before it is squared, as the square of a
    gradient that is still to be clipped may overflow.
    """

    def averaged(old: str, beta: float, new: ir.Value) -> ir.Value:
        return make.add(make.mul(moments[old], scalars.get(f"old {old}", g, lambda s: beta)), new)

    def times(name: str, part: float) -> ir.Value:
        return make.mul(g, scalars.get(name, g, lambda s: s.times(part, factor)))

    root = times("new deviation", math.sqrt(1.0 - optimizer.beta2))
    mean = averaged("mean", optimizer.beta1, times("new mean", 1.0 - optimizer.beta1))
    variance = averaged("variance", optimizer.beta2, make.mul(root, root))
    rate = scalars.get("corrected rate", g, lambda s: _corrected_rate(s, optimizer))
    epsilon = scalars.get(
        "epsilon", g, lambda s: s.times(s.root_correction(optimizer.beta2), optimizer.epsilon)
    )
    change = make.div(make.mul(mean, rate), make.add(make.unary("Sqrt", variance), epsilon))
    return change, {"mean": mean, "variance": variance}


def _corrected_rate(scalars: Scalars, optimizer: Optimizer) -> Scalar:
    rate = scalars.times(scalars.rate, scalars.root_correction(optimizer.beta2))
    return scalars.op("Div", rate, scalars.correction(optimizer.beta1))


def _shrink(make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value) -> ir.Value:
    """Return the parameter times ``1 - rate * weight_decay``."""
    if not optimizer.weight_decay:
        return w
    decay = optimizer.weight_decay
    return make.mul(w, scalars.get("kept", w, lambda s: s.op("Sub", 1.0, s.times(s.rate, decay))))


def _add_decay(
    make: Build, optimizer: Optimizer, scalars: Scalars, w: ir.Value, g: ir.Value
) -> ir.Value:
    """Return the scaled gradient plus the gradient of ``weight_decay / 2 * |w|^2``."""
    if scalars.factor != 1.0:
        g = make.mul(g, scalars.get("factor", g, lambda s: s.factor))
    if not optimizer.weight_decay:
        return g
    decay = scalars.get("decay", w, lambda s: optimizer.weight_decay)
    return make.add(g, make.mul(w, decay))


_UPDATES: Mapping[str, Callable[..., tuple[ir.Value, Moments]]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adam": _adam,
    "adamw": _adamw,
}
