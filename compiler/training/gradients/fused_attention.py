"""Gradients of attention that runs as one kernel, and dropout of its weights."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.training.gradients.dropout import draw_seeds, scale_of, threshold_of
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    forward_form,
    gradient,
)
from tensoropt.dialects import onnx
from tensoropt.dialects.build import float_attr, int_attr, sizes_of
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_BIAS, _SEEDS = 3, 6
_ROWS = 3
"""Dimensions of a matrix of weights with seeds of their own; the keys share theirs."""


@forward_form(onnx.ATTENTION_WITH_DROPOUT)
def dropped(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return the attention with the seeds of this step."""
    make, (q, k) = f.make, f.operands[:2]
    shape, ratio = [*sizes_of(q)[:_ROWS], sizes_of(k)[2]], float(f.info.attribute("ratio", 0.0))
    rows, keys, mix = draw_seeds(make, f.training, shape, _ROWS)
    options = f.op.attributes
    attributes = {name: options[name] for name in onnx.ATTENTION_OPTIONS if name in options}
    attributes["drop_mix"] = int_attr(mix)
    attributes["drop_threshold"] = int_attr(threshold_of(ratio))
    attributes["drop_scale"] = float_attr(scale_of(ratio))
    omitted = [make.no_value() for _ in range(_SEEDS - len(f.operands))]
    kinds = [result.type for result in f.op.results]
    results = make.onnx_many(
        onnx.ATTENTION, [*f.operands, *omitted, rows, keys], kinds, **attributes
    )
    f.leader = onnx.owner(results[0])
    return results


@gradient(onnx.ATTENTION, onnx.ATTENTION_WITH_DROPOUT)
def fused(b: Backward) -> Gradients:
    """Return the gradients of query, key, value and bias; the kernel computes the scores again."""
    attention = onnx.owner(b.result(0))
    assert attention is not None
    operands = list(attention.operands)[:_BIAS]
    others = [
        b.make.no_value() if onnx.is_no_value(value) else value
        for value in list(attention.operands)[_BIAS:]
    ]
    has_bias = b.has(_BIAS) and b.wanted[_BIAS]
    kinds = [value.type for value in (*operands, *others[: int(has_bias)])]
    options = attention.attributes
    gradients = b.make.onnx_many(
        onnx.ATTENTION_GRADIENT,
        [b.dy, *operands, b.result(0), b.result(1), *others],
        kinds,
        **{name: options[name] for name in onnx.ATTENTION_OPTIONS if name in options},
    )
    return b.first(*gradients)
