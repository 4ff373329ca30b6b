"""Attention built from differentiable operators: masked scores, softmax, sums.

Vaswani et al. (arXiv 1706.03762), section 3.2. Every operator splits along batch, heads and rows of
the query.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.rule.attending import (
    attend_long,
    can_block,
    cap_scores,
    mask_value,
)
from tensoropt.dialects.build import Build, element_type, shape_of
from tensoropt.dialects.mlir import ir

__all__ = [
    "add_present",
    "any_along_last",
    "attend",
    "attend_in_blocks",
    "boolean_bias",
]


def attend(
    make: Build,
    q: ir.Value,
    k: ir.Value,
    *,
    scale: float,
    softcap: float = 0.0,
    bias: ir.Value | None = None,
    softmax: ir.Type | None = None,
) -> tuple[ir.Value, ...]:
    """Return the raw, capped and masked scores, and their softmax over the keys.

    ``q`` and ``k`` come from `Heads`, ``k`` flipped. ``bias`` is added to the scores;
    ``softmax`` is the element type of the softmax.
    """
    raw = make.matmul(q if scale == 1.0 else make.scaled(q, scale), k)
    capped = cap_scores(make, raw, softcap)
    masked = capped if bias is None else make.add(capped, bias)
    own = element_type(masked)
    wide = masked if softmax is None else make.cast(masked, softmax)
    weights = make.cast(make.unary("Softmax", wide), own)
    return raw, capped, masked, weights


def attend_in_blocks(
    make: Build, q: ir.Value, k: ir.Value, v: ir.Value, scale: float, *, causal: bool
) -> ir.Value | None:
    """Return attention as one op that runs in blocks, ``None`` if the sequence is short."""
    if not can_block(q, k, v, causal=causal):
        return None
    return attend_long(make, make.scaled(q, scale), k, v, causal=causal)


def boolean_bias(
    make: Build, seen: ir.Value, like: ir.Value, hidden: float | None = None
) -> ir.Value:
    """Return 0 where ``seen`` is true and ``hidden`` elsewhere, in the element type of ``like``."""
    hidden = mask_value(like) if hidden is None else hidden
    return make.where(seen, make.scalar(0.0, like), make.scalar(hidden, like))


def add_present(make: Build, biases: Sequence[ir.Value | None]) -> ir.Value | None:
    """Return the sum of the biases that are present, or ``None`` without any."""
    summed = None
    for bias in (bias for bias in biases if bias is not None):
        summed = bias if summed is None else make.add(summed, bias)
    return summed


def any_along_last(make: Build, seen: ir.Value) -> ir.Value:
    """Return whether any bool along the last dimension is true; the dimension becomes 1."""
    ones = make.cast(seen, ir.F32Type.get())
    most = make.reduce("ReduceMax", ones, [len(shape_of(ones)) - 1])
    return make.compare("Greater", most, make.scalar(0.0, most))
