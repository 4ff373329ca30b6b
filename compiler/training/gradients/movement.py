"""Gradients of operators that move elements without computing."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient

__all__: list[str] = []


@gradient("Identity")
def identity(b: Backward) -> Gradients:
    """The gradient itself."""
    return [b.dy]
