"""The update of one parameter, as element by element ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensoropt.compiler.training.spec import Optimizer
from tensoropt.dialects.build import Build

__all__ = ["MOMENTS", "Hyper", "update"]

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("velocity",),
    "adam": ("mean", "variance"),
    "adamw": ("mean", "variance"),
}
"""What an optimizer keeps per parameter, in the shape of the parameter; zeros at the start."""


@dataclass(frozen=True)
class Hyper:
    """Scalars of a step (float32 values of the graph), the same for all parameters.

    ``step`` counts from 1; the corrections are ``1 - beta^step`` of Adam, ``None`` without it.
    """

    learning_rate: Any
    correction1: Any = None
    correction2: Any = None


Moments = Mapping[str, Any]


def update(
    make: Build, optimizer: Optimizer, hyper: Hyper, w: Any, g: Any, moments: Moments
) -> tuple[Any, Moments]:
    """Return the new parameter and the new moments, from the gradient ``g``, all of one shape."""
    return _UPDATES[optimizer.name](make, optimizer, hyper, w, g, moments)


def _sgd(
    make: Build, optimizer: Optimizer, hyper: Hyper, w: Any, g: Any, moments: Moments
) -> tuple[Any, Moments]:
    g = _decayed(make, optimizer, w, g)
    return make.sub(w, make.mul(g, hyper.learning_rate)), {}


def _momentum(
    make: Build, optimizer: Optimizer, hyper: Hyper, w: Any, g: Any, moments: Moments
) -> tuple[Any, Moments]:
    g = _decayed(make, optimizer, w, g)
    velocity = make.add(make.scaled(moments["velocity"], optimizer.momentum), g)
    return make.sub(w, make.mul(velocity, hyper.learning_rate)), {"velocity": velocity}


def _adam(
    make: Build, optimizer: Optimizer, hyper: Hyper, w: Any, g: Any, moments: Moments
) -> tuple[Any, Moments]:
    return _adam_step(make, optimizer, hyper, w, _decayed(make, optimizer, w, g), moments)


def _adamw(
    make: Build, optimizer: Optimizer, hyper: Hyper, w: Any, g: Any, moments: Moments
) -> tuple[Any, Moments]:
    if optimizer.weight_decay:
        shrink = make.scaled(hyper.learning_rate, optimizer.weight_decay)
        w = make.mul(w, make.sub(make.scalar(1.0, shrink), shrink))
    return _adam_step(make, optimizer, hyper, w, g, moments)


def _adam_step(
    make: Build, optimizer: Optimizer, hyper: Hyper, w: Any, g: Any, moments: Moments
) -> tuple[Any, Moments]:
    """Kingma and Ba (arXiv 1412.6980), algorithm 1."""
    mean = _averaged(make, moments["mean"], g, optimizer.beta1)
    variance = _averaged(make, moments["variance"], make.mul(g, g), optimizer.beta2)
    root = make.unary("Sqrt", make.div(variance, hyper.correction2))
    rate = make.div(hyper.learning_rate, hyper.correction1)
    change = make.div(make.mul(mean, rate), make.shifted(root, optimizer.epsilon))
    return make.sub(w, change), {"mean": mean, "variance": variance}


def _averaged(make: Build, old: Any, new: Any, beta: float) -> Any:
    return make.add(make.scaled(old, beta), make.scaled(new, 1.0 - beta))


def _decayed(make: Build, optimizer: Optimizer, w: Any, g: Any) -> Any:
    """Return the gradient with that of ``weight_decay / 2 * |w|^2``."""
    if not optimizer.weight_decay:
        return g
    return make.add(g, make.scaled(w, optimizer.weight_decay))


_UPDATES: Mapping[str, Callable[..., tuple[Any, Moments]]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adam": _adam,
    "adamw": _adamw,
}
