"""Attention of the standard and rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.training.gradients.heads import (
    Heads,
    any_of,
    attend,
    between,
    boolean_bias,
    grouped_bias,
    lowest,
    total,
)
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    decomposition,
    gradient,
)
from tensoropt.dialects.build import element_type, float_attr, int_attr, shape_of, sizes_of
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_MASK, _CACHE, _LENGTHS = 3, (4, 5), 6
_PACKED = 3


@decomposition("Attention")
def attention(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return result, keys and values by head, and the scores that were asked for."""
    make, (query, key, value) = f.make, f.operands[:3]
    value = make.cast(value, element_type(query))
    if any(map(f.has, (*_CACHE, _LENGTHS))):
        raise f.refused("it reads a cache of keys and values, which training does not have")
    heads = _heads(f)
    q, k = heads.query(make, query), heads.key(make, key, flip=True)
    seen, bias = _masks(f, heads, q, k)
    scale = float(f.info.attribute("scale", 1.0 / math.sqrt(shape_of(q)[-1] or 1)))
    softcap = float(f.info.attribute("softcap", 0.0))
    scores = attend(make, q, k, scale=scale, softcap=softcap, bias=bias, softmax=_precision(f))
    weights = scores[-1]
    if seen is not None:
        rows = any_of(make, seen)
        weights = make.where(rows, weights, make.scalar(0.0, weights)) if _asks(f, 3) else weights
    y = make.matmul(weights, heads.key(make, value, flip=False))
    if seen is not None:
        y = make.where(rows, y, make.scalar(0.0, y))
    found = [
        heads.result(make, y, packed=len(f.info.shape(0)) == _PACKED),
        heads.unpacked(make, key) if f.gives(1) else None,
        heads.unpacked(make, f.operands[2]) if f.gives(2) else None,
        heads.result(make, (*scores[:3], weights)[_mode(f)], packed=False) if f.gives(3) else None,
    ]
    return found[: len(f.op.results)]


def _mode(f: ForwardOp) -> int:
    return int(f.info.attribute("qk_matmul_output_mode", 0))


def _asks(f: ForwardOp, mode: int) -> bool:
    return f.gives(3) and _mode(f) == mode


def _heads(f: ForwardOp) -> Heads:
    if len(f.info.shape(0)) == _PACKED:
        own, shared = (int(f.info.attribute(n)) for n in ("q_num_heads", "kv_num_heads"))
    else:
        own, shared = (f.info.shape(i)[1] or 1 for i in (0, 1))
    return Heads(shared, own // shared)


def _precision(f: ForwardOp) -> ir.Type | None:
    number = f.info.attribute("softmax_precision")
    element = None if number is None else element_of(int(number))
    return None if element is None else element.type()


def _masks(
    f: ForwardOp, heads: Heads, q: ir.Value, k: ir.Value
) -> tuple[ir.Value | None, ir.Value | None]:
    """Return where rows see keys, ``None`` if each row sees one, and what is added to scores."""
    make, (rows, keys) = f.make, (shape_of(q)[-2] or 0, shape_of(k)[-1] or 0)
    causal = between(make, rows, keys, causal=bool(f.info.attribute("is_causal", 0)))
    bias = None if causal is None else boolean_bias(make, causal, q)
    if not f.has(_MASK):
        return None, bias
    mask = grouped_bias(make, heads, f.operands[_MASK])
    seen, added = _explicit(f, mask, q, keys)
    seen = seen if causal is None else make.binary("And", seen, causal)
    return seen, total(make, [bias, added])


def _explicit(f: ForwardOp, mask: ir.Value, q: ir.Value, keys: int) -> tuple[ir.Value, ir.Value]:
    """Return which keys a mask lets see, and what it adds; it may end before the last key."""
    make, floor = f.make, lowest(q)
    if element_type(mask) == ir.IntegerType.get_signless(1):
        seen, added = mask, boolean_bias(make, mask, q)
    else:
        mask = make.cast(mask, element_type(q))
        seen = make.compare("Greater", mask, make.scalar(floor, mask))
        added = make.where(seen, mask, make.scalar(floor, mask))
    *outer, short = sizes_of(mask)
    if 1 < short < keys:
        added = make.pad(added, len(outer), (0, keys - short), floor)
        seen = make.compare("Greater", added, make.scalar(floor, added))
    return seen, added


@gradient("RotaryEmbedding", "com.microsoft.RotaryEmbedding")
def rotary_embedding(b: Backward) -> Gradients:
    """Return the gradient turned back: by the same angles, with their sines negated.

    The angles themselves are constants.
    """
    sine = 2 if b.info.name == "RotaryEmbedding" else 3
    operands = [b.operand(i) if b.has(i) else b.make.no_value() for i in range(len(b.operands))]
    operands[0], operands[sine] = b.dy, b.make.unary("Neg", operands[sine])
    attributes = {
        name: float_attr(attribute) if isinstance(attribute, float) else int_attr(attribute)
        for name, attribute in b.info.attributes
    }
    return b.first(b.make.onnx(b.info.name, operands, b.dy.type, **attributes))
