"""Gradients of the standard Attention and of rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.shapes.causality import is_causal_term, sees_earlier
from tensoropt.compiler.sharding.rule.attending import mask_value, visible_keys
from tensoropt.compiler.sharding.rule.heads import Heads, grouped_bias, heads_of
from tensoropt.compiler.training.gradients.heads import (
    add_present,
    any_along_last,
    attend,
    attend_in_blocks,
    boolean_bias,
)
from tensoropt.compiler.training.gradients.kernel_attention import Attended
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    decomposition,
    gradient,
)
from tensoropt.dialects.build import element_type, onnx_attr, shape_of, sizes_of
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir

__all__ = ["attention_in_kernel"]

_MASK, _CACHE, _LENGTHS = 3, (4, 5), 6
_PACKED = 3
_FLOAT = 1
"""TensorProto.FLOAT."""


@decomposition("Attention")
def attention(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return the result, keys and values by head, and the requested scores."""
    if any(map(f.has, (*_CACHE, _LENGTHS))):
        raise f.unsupported("it reads a cache of keys and values, which training does not have")
    if _has_window(f):
        raise f.unsupported("a row sees a window of the keys")
    fused = attention_in_kernel(f)
    if fused is not None:
        return fused
    make, (query, key, value) = f.make, f.operands[:3]
    value = make.cast(value, element_type(query))
    heads = heads_of(f.info)
    q, k = heads.query(make, query), heads.key(make, key, flip=True)
    v = heads.key(make, value, flip=False)
    scale, causal = _scale_of(f, q), bool(f.info.attribute("is_causal", 0))
    y = attend_in_blocks(make, q, k, v, scale, causal=causal) if _is_plain(f) else None
    scores = None
    if y is None:
        y, scores = _attend(f, heads, q, k, v, scale)
    found = [
        heads.result(make, y, packed=len(f.info.shape(0)) == _PACKED),
        *_unpacked(f, heads, key),
        None if scores is None else heads.result(make, scores, packed=False),
    ]
    return found[: len(f.op.results)]


def _unpacked(f: ForwardOp, heads: Heads, key: ir.Value) -> list[ir.Value | None]:
    """Return keys and values by head, if they are results."""
    return [
        heads.unpack(f.make, key) if f.has_result(1) else None,
        heads.unpack(f.make, f.operands[2]) if f.has_result(2) else None,
    ]


def attention_in_kernel(f: ForwardOp) -> list[ir.Value | None] | None:
    """Return the results with attention as one operation, ``None`` if the kernel lacks its form."""
    is_wide = f.info.attribute("softmax_precision", _FLOAT) == _FLOAT
    kernels = f.training.kernels
    if kernels is None or f.has_result(3) or not is_wide or _has_window(f):
        return None
    if any(map(f.has, (*_CACHE, _LENGTHS))):
        return None
    make, heads, (query, key) = f.make, heads_of(f.info), f.operands[:2]
    value = make.cast(f.operands[2], element_type(query))
    queries = Heads(heads.queries, 1)
    q, k, v = queries.query(make, query), heads.unpack(make, key), heads.unpack(make, value)
    bias, causal = None, bool(f.info.attribute("is_causal", 0))
    if f.has(_MASK):
        mask = f.operands[_MASK]
        if sees_earlier(mask) or is_causal_term(mask):
            causal = True
        else:
            bias = _explicit_mask(f, mask, q, sizes_of(k)[-2], -math.inf)[1]
    softcap = float(f.info.attribute("softcap", 0.0))
    attended = Attended(q, k, v, bias, _scale_of(f, q), softcap, causal)
    if not kernels.fit(attended, f.op):
        return None
    y = queries.result(make, attended.build(make), packed=len(f.info.shape(0)) == _PACKED)
    return [y, *_unpacked(f, heads, key)][: len(f.op.results)]


def _scale_of(f: ForwardOp, q: ir.Value) -> float:
    return float(f.info.attribute("scale", 1.0 / math.sqrt(shape_of(q)[-1] or 1)))


def _has_window(f: ForwardOp) -> bool:
    """Return whether a row sees a window of the keys."""
    sizes = (int(f.info.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    return max(sizes) >= 0


def _is_plain(f: ForwardOp) -> bool:
    """Return whether the scores have no mask, limit, or type of their own, and are no result."""
    special = any(name in dict(f.info.attributes) for name in ("softcap", "softmax_precision"))
    return not (f.has(_MASK) or f.has_result(3) or special)


def _attend(
    f: ForwardOp, heads: Heads, q: ir.Value, k: ir.Value, v: ir.Value, scale: float
) -> tuple[ir.Value, ir.Value | None]:
    """Return attention by head, and the requested scores."""
    make, (seen, bias) = f.make, _masks(f, heads, q, k)
    softcap = float(f.info.attribute("softcap", 0.0))
    precision = f.info.attribute("softmax_precision")
    element = None if precision is None else element_of(int(precision))
    softmax = None if element is None else element.type()
    scores = attend(make, q, k, scale=scale, softcap=softcap, bias=bias, softmax=softmax)
    weights, mode = scores[-1], int(f.info.attribute("qk_matmul_output_mode", 0))
    if seen is not None:
        rows = any_along_last(make, seen)
        # A row that sees no key is zero; its weights matter only if they are a result.
        if f.has_result(3) and mode == 3:
            weights = make.where(rows, weights, make.scalar(0.0, weights))
    y = make.matmul(weights, v)
    if seen is not None:
        y = make.where(rows, y, make.scalar(0.0, y))
    return y, (*scores[:3], weights)[mode] if f.has_result(3) else None


def _masks(
    f: ForwardOp, heads: Heads, q: ir.Value, k: ir.Value
) -> tuple[ir.Value | None, ir.Value | None]:
    """Return the mask of visible keys and the bias of the scores.

    The mask is ``None`` if every row sees a key; the bias is ``None`` if nothing is added.
    """
    make, (rows, keys) = f.make, (shape_of(q)[-2] or 0, shape_of(k)[-1] or 0)
    causal = visible_keys(make, rows, keys, causal=bool(f.info.attribute("is_causal", 0)))
    bias = None if causal is None else boolean_bias(make, causal, q)
    if not f.has(_MASK):
        return None, bias
    mask = grouped_bias(make, heads, f.operands[_MASK])
    seen, added = _explicit_mask(f, mask, q, keys)
    seen = seen if causal is None else make.binary("And", seen, causal)
    return seen, add_present(make, [bias, added])


def _explicit_mask(
    f: ForwardOp, mask: ir.Value, q: ir.Value, keys: int, hidden: float | None = None
) -> tuple[ir.Value, ir.Value]:
    """Return the keys that a mask makes visible, and its bias; it may end before the last key.

    The bias of a hidden key is ``hidden``, by default finite.
    """
    make, floor = f.make, mask_value(q)
    hidden = floor if hidden is None else hidden
    if element_type(mask) == ir.IntegerType.get_signless(1):
        seen, added = mask, boolean_bias(make, mask, q, hidden)
    else:
        mask = make.cast(mask, element_type(q))
        seen = make.compare("Greater", mask, make.scalar(floor, mask))
        added = make.where(seen, mask, make.scalar(hidden, mask))
    *outer, short = sizes_of(mask)
    if 1 < short < keys:
        added = make.pad(added, len(outer), (0, keys - short), hidden)
        seen = make.compare("Greater", added, make.scalar(floor, added))
    return seen, added


@gradient("RotaryEmbedding", "com.microsoft.RotaryEmbedding")
def rotary_embedding(b: Backward) -> Gradients:
    """Return the gradient rotated back: by the same angles, with negated sines.

    The angles are constants.
    """
    sine = 2 if b.info.name == "RotaryEmbedding" else 3
    operands = [b.operand(i) if b.has(i) else b.make.no_value() for i in range(len(b.operands))]
    operands[0], operands[sine] = b.dy, b.make.unary("Neg", operands[sine])
    attributes = {name: onnx_attr(value) for name, value in b.info.attributes}
    return b.first(b.make.onnx(b.info.name, operands, b.dy.type, **attributes))
