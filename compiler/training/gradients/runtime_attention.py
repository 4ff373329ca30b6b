"""ONNX Runtime's own attention operators, decomposed into operators that have gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tensoropt.compiler.sharding.rule.attending import positions, visible_keys
from tensoropt.compiler.sharding.rule.heads import Heads, grouped_bias, heads_of, rotated
from tensoropt.compiler.training.gradients.cells import split
from tensoropt.compiler.training.gradients.heads import (
    add_present,
    attend,
    attend_in_blocks,
    boolean_bias,
)
from tensoropt.compiler.training.gradients.kernel_attention import Attended
from tensoropt.compiler.training.gradients.registry import ForwardOp, decomposition
from tensoropt.dialects.build import element_type, shape_of, sizes_of
from tensoropt.dialects.mlir import ir

__all__ = ["multi_head_in_kernel"]

_PACKED = 3
"""Dimensions of values with heads in the last one."""

_CACHE = "it reads a cache of keys and values, which training does not have"


def _result(
    f: ForwardOp,
    heads: Heads,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    *,
    biases: Sequence[ir.Value | None],
    softcap: float = 0.0,
    causal: bool = False,
) -> ir.Value:
    """Return attention, packed `b s (h d)`; ``biases`` broadcast to `b h s t`.

    If ``causal``, rows see no later keys either.
    """
    fused = _in_kernel(f, heads, query, key, value, biases=biases, softcap=softcap, causal=causal)
    if fused is not None:
        return fused
    make = f.make
    q, k = heads.query(make, query), heads.key(make, key, flip=True)
    v = heads.key(make, value, flip=False)
    scale = _scale_of(f, q)
    added = [grouped_bias(make, heads, bias) for bias in biases if bias is not None]
    if not added and not softcap and (y := attend_in_blocks(make, q, k, v, scale, causal=causal)):
        return heads.result(make, y, packed=True)
    rows, keys = shape_of(q)[-2] or 0, shape_of(v)[-2] or 0
    seen = visible_keys(make, rows, keys, causal=causal)
    hidden = [] if seen is None else [boolean_bias(make, seen, q)]
    bias = add_present(make, [*hidden, *added])
    *_, weights = attend(make, q, k, scale=scale, softcap=softcap, bias=bias)
    return heads.result(make, make.matmul(weights, v), packed=True)


def _in_kernel(
    f: ForwardOp,
    heads: Heads,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    *,
    biases: Sequence[ir.Value | None],
    softcap: float = 0.0,
    causal: bool = False,
) -> ir.Value | None:
    """Return the same attention as one operation, ``None`` if the kernel lacks its form."""
    make, kernels = f.make, f.training.kernels
    if kernels is None:
        return None
    queries, bias = Heads(heads.queries, 1), add_present(make, biases)
    q, k, v = queries.query(make, query), heads.unpack(make, key), heads.unpack(make, value)
    attended = Attended(q, k, v, bias, _scale_of(f, q), softcap, causal)
    if not kernels.fit(attended, f.op):
        return None
    return queries.result(make, attended.build(make), packed=True)


def _scale_of(f: ForwardOp, q: ir.Value) -> float:
    return float(f.info.attribute("scale", 0.0)) or 1.0 / math.sqrt(shape_of(q)[-1] or 1)


def _padding(f: ForwardOp, index: int, keys: int, like: ir.Value) -> ir.Value | None:
    """Return the bias of a mask of keys: a length, or a 0 or 1 per key, for each sequence."""
    if not f.has(index):
        return None
    make, mask, shape = f.make, f.operands[index], sizes_of(f.operands[index])
    hidden = float(f.info.attribute("mask_filter_value", -10000.0))
    if not _is_per_text(shape, f.info.shape(0)[0], keys):
        raise f.unsupported(f"a mask of shape {shape}, expected a length or a mask per sequence")
    if len(shape) == 1:
        lengths = make.unsqueeze(mask, [1, 2, 3])
        seen = make.compare("Less", make.cast(positions(make, keys), element_type(mask)), lengths)
    else:
        mask = make.unsqueeze(mask, [1, 2] if len(shape) == 2 else [1])
        seen = make.compare("Greater", mask, make.scalar(0, mask))
    return boolean_bias(make, seen, like, hidden)


def _is_per_text(shape: Sequence[int | None], batch: int | None, keys: int | None) -> bool:
    """Return whether a mask has a length, or a 0 or 1 for each key, for each sequence."""
    if len(shape) not in (1, 2, 3) or shape[0] != batch:
        return False
    return len(shape) == 1 or shape[-1] == keys


@decomposition("com.microsoft.MultiHeadAttention")
def multi_head(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return result, keys and values; the bias concatenates those of query, key and value."""
    if any(map(f.has, (6, 7, 8, 9))):
        raise f.unsupported(_CACHE)
    f.check_unused((3,))
    if not (f.has(1) and f.has(2)) or len(f.info.shape(0)) != _PACKED:
        raise f.unsupported("its query, key and value are packed in one, expected three operands")
    results = _multi_head(f, _result)
    assert results is not None
    return results


def multi_head_in_kernel(f: ForwardOp) -> list[ir.Value | None] | None:
    """Return the results of a MultiHeadAttention with a kernel, ``None`` if that lacks its form."""
    keyed, mask = (f.info.shape(index) if f.has(index) else () for index in (1, 4))
    is_packed = any(map(f.has, (6, 7, 8, 9))) or f.has_result(3) or len(f.info.shape(0)) != _PACKED
    if is_packed or not f.has(2) or (f.has(3) and len(keyed) != _PACKED):
        return None
    if mask and not _is_per_text(mask, f.info.shape(0)[0], keyed[-2]):
        return None
    return _multi_head(f, _in_kernel)


def _multi_head(
    f: ForwardOp, attend: Callable[..., ir.Value | None]
) -> list[ir.Value | None] | None:
    """Return the results by a way to attend, ``None`` if that has none."""
    make, heads, (query, key, value) = f.make, heads_of(f.info), _add_bias(f)
    biases = [_padding(f, 4, f.info.shape(1)[-2] or 0, query), f.operands[5] if f.has(5) else None]
    causal = bool(f.info.attribute("unidirectional", 0))
    y = attend(f, heads, query, key, value, biases=biases, causal=causal)
    if y is None:
        return None
    results = [
        y,
        heads.unpack(make, key) if f.has_result(1) else None,
        heads.unpack(make, value) if f.has_result(2) else None,
    ]
    return results[: len(f.op.results)]


def _add_bias(f: ForwardOp) -> list[ir.Value]:
    """Return query, key and value, each plus its part of the bias; keys by head have no bias."""
    operand = f.operands[:3]
    if not f.has(3):
        return operand
    if any(len(shape_of(x)) != 3 for x in operand):
        raise f.unsupported("it has a bias and keys by head, expected keys of three dimensions")
    parts = split(f.make, f.operands[3], 0, [shape_of(x)[-1] or 0 for x in operand])
    return [f.make.add(x, part) for x, part in zip(operand, parts, strict=True)]


@decomposition("com.microsoft.Attention")
def merged_attention(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return the result; query, key and value are products of the input with parts of one weight.

    The weight is split before it is multiplied, so that each part splits along its heads.
    """
    make = f.make
    if f.has(4) or f.has(6):
        raise f.unsupported(_CACHE)
    if f.info.attribute("do_rotary", 0):
        raise f.unsupported("it applies rotary embeddings, expected do_rotary of 0")
    x, columns = f.operands[0], f.info.shape(1)[1] or 0
    sizes = list(f.info.attribute("qkv_hidden_sizes", ())) or [columns // 3] * 3
    parts = [make.matmul(x, w) for w in split(make, f.operands[1], 1, sizes)]
    if f.has(2):
        biases = split(make, f.operands[2], 0, sizes)
        parts = [make.add(part, bias) for part, bias in zip(parts, biases, strict=True)]
    rows = f.info.shape(0)[1] or 0
    added = [_padding(f, 3, rows, x), f.operands[5] if f.has(5) else None]
    heads = heads_of(f.info)
    causal = bool(f.info.attribute("unidirectional", 0))
    y = _result(f, heads, *parts, biases=added, causal=causal)
    unpacked = (
        [make.unsqueeze(heads.unpack(make, part), [0]) for part in parts[1:]]
        if f.has_result(1)
        else []
    )
    return [y, make.concat(unpacked, 0) if unpacked else None][: len(f.op.results)]


_UNSUPPORTED = {
    "smooth_softmax": 0,
    "sliding_window_cache": 0,
    "kv_cache_bit_width": 0,
    "qk_output": 0,
}


@decomposition("com.microsoft.GroupQueryAttention")
def grouped_attention(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return result, keys and values of sequences without a past: the cache is empty."""
    make, heads = f.make, heads_of(f.info)
    _check_grouped(f)
    if f.has(1):
        query, key, value = f.operands[:3]
    else:  # all three are packed in the first operand
        sizes = heads.packed_sizes(f.info.shape(0)[2] or 0)
        query, key, value = split(make, f.operands[0], 2, sizes)
    query, key = _rotate(f, query, heads.queries), _rotate(f, key, heads.shared)
    rows, keys = shape_of(query)[1] or 0, shape_of(key)[1] or 0
    causal, window = (
        bool(f.info.attribute("causal", 1)),
        int(f.info.attribute("local_window_size", -1)),
    )
    added = [_lengths(f, keys, query), f.operands[10] if f.has(10) else None]
    if window > 0:
        near = visible_keys(make, rows, keys, causal=False, window=window - 1)
        added.append(None if near is None else boolean_bias(make, near, query))
    softcap = float(f.info.attribute("softcap", 0.0))
    found = [
        _result(f, heads, query, key, value, biases=added, softcap=softcap, causal=causal),
        heads.unpack(make, key) if f.has_result(1) else None,
        heads.unpack(make, value) if f.has_result(2) else None,
    ]
    return found[: len(f.op.results)]


def _check_grouped(f: ForwardOp) -> None:
    """Raise UserError for options that have no gradient."""
    if any(f.has(i) and 0 not in f.info.shape(i) for i in (3, 4)):
        raise f.unsupported(_CACHE)
    if any(f.has(i) for i in range(11, len(f.operands))):
        raise f.unsupported("it has sinks, scales or norms, expected none of these")
    f.check_unused((3,))
    for name, default in _UNSUPPORTED.items():
        if f.info.attribute(name, default) not in (default, -1):
            raise f.unsupported(f"it has the attribute {name}, expected none")


def _rotate(f: ForwardOp, x: ir.Value, count: int) -> ir.Value:
    """Return query or key rotated by the angles of its positions, if requested."""
    import numpy as np

    if not f.info.attribute("do_rotary", 0):
        return x
    make, (batch, rows, _) = f.make, (n or 0 for n in shape_of(x))
    where = make.constant(np.tile(np.arange(rows, dtype=np.int64), (batch, 1)))
    where = make.add(where, make.take(f.operands[9], make.ints([0]), 1)) if f.has(9) else where
    interleaved = bool(f.info.attribute("rotary_interleaved", 0))
    return rotated(make, x, count, where, f.operands[7:9], interleaved=interleaved)


def _lengths(f: ForwardOp, keys: int, like: ir.Value) -> ir.Value | None:
    """Return the bias that hides keys after the end of each sequence; ``None`` if all are full."""
    make, last = f.make, f.operands[5]
    known = f.info.literal(5)
    if known is not None and (known == keys - 1).all():
        return None
    last = make.reshape(last, [shape_of(last)[0] or 1, 1, 1, 1])
    key = make.cast(positions(make, keys), element_type(last))
    return boolean_bias(make, make.compare("LessOrEqual", key, last), like)
