"""Gradients of the softmax family; Hardmax is constant wherever it has a derivative."""

from __future__ import annotations

from tensoropt.compiler.sharding.ops.softmax import normalised_dims
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient

__all__: list[str] = []


@gradient("Softmax")
def softmax(b: Backward) -> Gradients:
    """dX = Y (dY - sum of Y dY), which reads only the result."""
    make, y = b.make, b.result()
    total = make.reduce("ReduceSum", make.mul(y, b.dy), normalised_dims(b.info))
    return [make.mul(y, make.sub(b.dy, total))]


@gradient("LogSoftmax")
def log_softmax(b: Backward) -> Gradients:
    """dX = dY - exp(Y) times the sum of dY, which reads only the result."""
    make = b.make
    total = make.reduce("ReduceSum", b.dy, normalised_dims(b.info))
    return [make.sub(b.dy, make.mul(make.unary("Exp", b.result()), total))]
