"""Gradients of reductions."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient

__all__: list[str] = []


@gradient("ReduceSum")
def reduce_sum(b: Backward) -> Gradients:
    """The gradient, broadcast along what was reduced."""
    axes = b.info.literal_ints(1) if b.has(1) else None
    rank = len(b.shape(0))
    dims = sorted(d % rank for d in axes) if axes else list(range(rank))
    dy = b.dy if b.info.attribute("keepdims", 1) else b.make.unsqueeze(b.dy, dims)
    return b.first(b.make.expand(dy, b.shape(0)))
