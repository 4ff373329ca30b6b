"""Gradients of attention that runs as one kernel."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects import onnx
from tensoropt.dialects.build import onnx_attr

__all__: list[str] = []

_BIAS = 3


@gradient("tensoropt.Attention")
def fused(b: Backward) -> Gradients:
    """Return the gradients of query, key, value and bias; the kernel computes the scores again."""
    operands = [b.operand(i) for i in range(_BIAS)]
    others = [
        b.operand(i) if b.has(i) else b.make.no_value() for i in range(_BIAS, len(b.operands))
    ]
    has_bias = len(b.operands) > _BIAS and b.wanted[_BIAS]
    kinds = [value.type for value in (*operands, *others[: int(has_bias)])]
    names = ("scale", "causal", "window", "softcap")
    attributes = dict(b.info.attributes)
    gradients = b.make.onnx_many(
        onnx.ATTENTION_GRADIENT,
        [b.dy, *operands, b.result(0), b.result(1), *others],
        kinds,
        **{name: onnx_attr(attributes[name]) for name in names if name in attributes},
    )
    return b.first(*gradients)
