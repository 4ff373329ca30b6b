"""Gradients of products of matrices."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient

__all__: list[str] = []


@gradient("MatMul")
def matmul(b: Backward) -> Gradients:
    """dA = dY B^T and dB = A^T dY, summed over what was broadcast."""
    make, dy = b.make, b.dy
    da = make.matmul(dy, make.swapped(b.operand(1))) if b.wanted[0] else None
    db = make.matmul(make.swapped(b.operand(0)), dy) if b.wanted[1] else None
    return [
        None if da is None else b.reduced(da, 0),
        None if db is None else b.reduced(db, 1),
    ]
