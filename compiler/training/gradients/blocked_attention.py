"""Gradients of attention in blocks."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects import onnx
from tensoropt.dialects.build import int_attr

__all__: list[str] = []

_MASK = 3


@gradient("tensoropt.BlockedAttention")
def blocked(b: Backward) -> Gradients:
    """Return the gradients of query, key and value, computed in the same blocks."""
    masks = [b.operand(_MASK)] if b.has(_MASK) else []
    if masks and b.wanted[_MASK]:
        raise b.unsupported("the loss depends on its mask")
    operands = [b.operand(i) for i in range(_MASK)]
    found = b.make.onnx_many(
        onnx.BLOCKED_GRADIENT,
        [*operands, b.result(0), b.result(1), b.dy, *masks],
        [value.type for value in operands],
        causal=int_attr(int(b.info.attribute("causal", 0))),
    )
    return b.first(*found)
