"""Gradients of operators that act element by element."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient

__all__: list[str] = []


@gradient("Add")
def add(b: Backward) -> Gradients:
    """The gradient itself, summed over what was broadcast."""
    return [b.reduced(b.dy, i) if want else None for i, want in enumerate(b.wanted)]


@gradient("Mul")
def mul(b: Backward) -> Gradients:
    """dA = dY B and dB = dY A."""
    return [
        b.reduced(b.make.mul(b.dy, b.operand(1 - i)), i) if want else None
        for i, want in enumerate(b.wanted)
    ]


@gradient("Relu")
def relu(b: Backward) -> Gradients:
    """The gradient where the result is positive."""
    zero = b.make.scalar(0.0, b.dy)
    return [b.make.where(b.make.compare("Greater", b.result(), zero), b.dy, zero)]
