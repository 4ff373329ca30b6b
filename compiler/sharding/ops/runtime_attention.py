"""The runtime's attention operators, with packed heads, merged projections, and KV caches."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.ops.grouped_ring import attend_grouped, grouped_extents
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.blocks import Packed, packing
from tensoropt.compiler.sharding.rule.factors import FactorMap, aligned, present_factor, rule_of
from tensoropt.compiler.sharding.rule.heads import Heads, heads_of, local_heads
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.ring_rule import (
    attend_in_ring,
    attention_rule,
    ring_extents,
    scale_of,
)
from tensoropt.compiler.sharding.rule.ring_steps import Extents
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.build import int_attr, ints_attr
from tensoropt.dialects.mlir import ir

__all__ = ["grouped", "merged", "multi_head"]

# Indices of the factors over heads of key and value, over rows, and over the query heads of each.
_HEADS, _ROWS, _QUERIES = 1, 2, 3

# Dimensions of heads and of rows in query, key, and value, by rank: `b s (h d)` or `b h s d`.
_HEAD, _ROW = {3: 2, 4: 1}, {3: 1, 4: 2}


@sharding_rule("com.microsoft.GroupQueryAttention")
def grouped(info: OpInfo) -> Rule:
    """Split batch, heads of key and value, also in the cache, query heads, and long prompts.

    Ranks with query heads of the same key head each have that head of key, value and cache.

    If query, key, and value are packed in one operand, it is split in their blocks if it is known
    to have them; else each rank gathers its heads of the whole. Ranks with query heads of the same
    key head each have the key and value that they share. In a long prompt without a cache, keys and
    values travel in a ring; the new caches are split along the sequence.

    With explicit positions, a batch of sequences of several tokens stays whole: without a cache,
    the runtime counts from the first position of all sequences.
    """
    own = {} if info.operand(1) is None else {0: 2, 1: 2, 2: 2}
    heads = {**own, 3: 1, 4: 1, 11: 0, **aligned(info, 10, 12, 13, dim=1, rank=4)}
    batch = {**dict.fromkeys((0, 1, 2, 3, 4, 5, 9), 0), **aligned(info, 10, 12, 13, dim=0, rank=4)}
    alone = info.operand(9) is None or info.shape(0)[1] == 1
    counted, known = heads_of(info), info.shape(0)[2] is not None
    extents = grouped_extents(info, _HEADS, _ROWS, _QUERIES)
    caches = {} if extents is None else {1: 2, 2: 2}
    factors = [
        present_factor(info, batch, dict.fromkeys(range(4), 0), can_split=alone),
        present_factor(info, heads, {0: 2, 1: 1, 2: 1, 3: 1}, size=counted.shared, can_split=known),
        present_factor(info, {0: 1}, {0: 1, **caches}, can_split=False),
        FactorMap({}, size=counted.each, can_split=known),
        window_loop([_keys(info, 3), 2 * (info.result_shape()[2] or 1) // counted.queries]),
    ]
    mine = {11: 0, **aligned(info, 10, dim=1, rank=4), **({0: 2} if own else {})}
    minors = [(i, dim, _QUERIES) for i, dim in mine.items() if info.operand(i) is not None]
    minors.append((len(info.operands), 2, _QUERIES))
    return attention_rule(
        info, factors, extents, whole=_localize_grouped, ring=_attend_grouped, minors=minors
    )


@packing("com.microsoft.GroupQueryAttention")
def _packed_grouped(info: OpInfo) -> Packed | None:
    sizes = _grouped_sizes(info)
    if not sizes:
        return None
    heads = heads_of(info)
    units = heads.queries, heads.shared, heads.shared
    minor = None if heads.each == 1 else _QUERIES
    return Packed(read=(((0, 2), sizes),), factor=_HEADS, units=units, minor=minor)


def _grouped_sizes(info: OpInfo) -> tuple[int, ...]:
    """Return the sizes of query, key and value in a packed operand 0; none if not packed."""
    width = info.shape(0)[2]
    if info.operand(1) is not None or width is None:
        return ()
    return heads_of(info).packed_sizes(width)


def _keys(info: OpInfo, past: int) -> int:
    """Return the number of keys: the new keys and the keys in operand ``past``."""
    keys = info.operand(1) or info.operand(0)
    assert keys is not None
    cache = info.operand(past)
    old = 0 if cache is None else count(cache.sizes[-2:-1])
    return count(keys.sizes[_ROW[keys.rank] :][:1]) + old


def _localize_grouped(local: LocalOp) -> list[ir.Value]:
    divided = local.divide_attributes(_HEADS, "num_heads", "kv_num_heads")
    divided["num_heads"] = int_attr(local_heads(local, _HEADS, _QUERIES).queries)
    return local.clone({0: _own_heads(local)}, divided)


def _attend_grouped(local: LocalOp) -> list[ir.Value]:
    packed = _own_heads(local)
    return attend_grouped(local, packed, heads=_HEADS, rows=_ROWS, queries=_QUERIES)


def _own_heads(local: LocalOp) -> ir.Value:
    """Return operand 0 with the rank's heads only, also if it is packed."""
    sizes, own = _grouped_sizes(local.info), local.operands[0]
    if not sizes:
        return own
    own = _shares(local, {0: 2}, sizes).get(0, own)
    is_split = any(tensor == 0 for tensor, _, _ in local.rule.minors)
    return own if local.pieces(_QUERIES) == 1 or is_split else _own_queries(local, own, sizes)


def _own_queries(local: LocalOp, packed: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """Return the rank's query heads, and its key and value, of one key head's packed part."""
    import numpy as np

    query, key, value = (size // local.pieces(_HEADS) for size in sizes)
    rows = np.arange(query).reshape(local.pieces(_QUERIES), -1)
    rest = np.broadcast_to(query + np.arange(key + value), (len(rows), key + value))
    picked = local.axis_constant(np.concatenate([rows, rest], axis=1), local.axes(_QUERIES))
    return Arithmetic(local).take(packed, picked, 2)


def _shares(local: LocalOp, places: dict[int, int], blocks: Sequence[int]) -> dict[int, ir.Value]:
    """Return the rank's part of each operand that is present and whole, by its index.

    Along its dimension in ``places``, an operand has ``blocks`` in order, each with all heads.
    Empty if no axis splits the heads.
    """
    import numpy as np

    held = {i: d for i, d in places.items() if local.info.operand(i) is not None}
    present = [i for i, dim in held.items() if local.rule.operands[i][dim] is None]
    if local.pieces(_HEADS) == 1 or not present:
        return {}
    starts = np.cumsum([0, *blocks[:-1]])
    runs = [start + np.arange(size) for start, size in zip(starts, blocks, strict=True)]
    rows = [run.reshape(local.pieces(_HEADS), -1) for run in runs]
    picked = local.axis_constant(np.concatenate(rows, axis=1), local.axes(_HEADS))
    make = Arithmetic(local)
    return {i: make.take(local.operands[i], picked, places[i]) for i in present}


@sharding_rule("com.microsoft.MultiHeadAttention")
def multi_head(info: OpInfo) -> Rule | None:
    """Split batch, heads, the rows of a separate query without causality, and long sequences.

    Keys and values of a long sequence travel in a ring if there is neither mask nor bias. The bias
    combines the biases of query, key, and value; each rank gathers its heads of the whole.
    ``None`` if beams refer to each other's cache, and for heads packed as `b s h 3 d`: no CPU
    kernel runs them, so the rule cannot be proved.
    """
    if info.operand(9) is not None or any(info.rank(index) == 5 for index in range(2)):
        return None
    heads = int(info.attribute("num_heads"))
    own = {i: operand.rank for i, operand in enumerate(info.operands[:3]) if operand is not None}
    batch = {**dict.fromkeys((*own, 4, 6, 7), 0), **aligned(info, 5, dim=0, rank=4)}
    split = {i: _HEAD[rank] for i, rank in own.items()}
    split |= {6: 1, 7: 1, **aligned(info, 5, dim=1, rank=4)}
    rows = {0: 1, **({4: 1} if info.rank(4) == 3 else {}), **aligned(info, 5, dim=2, rank=4)}
    known = info.operand(3) is None or None not in info.shape(3)
    free = 1 in own and not info.attribute("unidirectional", 0)
    factors = [
        present_factor(info, batch, dict.fromkeys(range(4), 0), can_split=_is_per_batch(info, 4)),
        present_factor(info, split, {0: 2, 1: 1, 2: 1, 3: 1}, size=heads, can_split=known),
        present_factor(info, rows, {0: 1, 3: 2}, can_split=free and _is_per_batch(info, 4)),
        window_loop([_keys(info, 6), 2 * (info.result_shape()[2] or 1) // heads]),
    ]
    extents = _extents(info, heads)
    return attention_rule(
        info, factors, extents, whole=_localize_multi_head, ring=_attend_multi_head
    )


def _extents(info: OpInfo, heads: int) -> Extents | None:
    """Return the sizes of a ring, ``None`` if the attention is short, or has masks or a cache."""
    own = [operand for operand in info.operands[:3] if operand is not None and operand.rank == 3]
    plain = len(own) == sum(operand is not None for operand in info.operands) == 3
    if not plain or any(result is not None for result in info.results[1:]):
        return None
    if any(None in operand.shape for operand in own):
        return None
    (query, key, value), causal = own, bool(info.attribute("unidirectional", 0))
    if key.shape[1] != query.shape[1]:
        return None
    sizes, lead = ((key.shape[2] or 0) // heads, (value.shape[2] or 0) // heads), (0, _HEADS)
    return ring_extents(
        query, query.shape[1], sizes, queries=lead, keys=lead, sequence=_ROWS, causal=causal
    )


def _is_per_batch(info: OpInfo, mask: int) -> bool:
    """Return whether the mask has one entry per sequence, rather than all ends, then all starts."""
    return info.rank(mask) != 1 or info.shape(mask) == info.shape(0)[:1]


def _localize_multi_head(local: LocalOp) -> list[ir.Value]:
    info = local.info
    width, bias = info.result_shape()[2] or 0, info.operand(3)
    hidden = 0 if bias is None else ((bias.shape[0] or 0) - width) // 2
    taken = {} if bias is None else _shares(local, {3: 0}, (hidden, hidden, width))
    return local.clone(taken, local.divide_attributes(_HEADS, "num_heads"))


def _attend_multi_head(local: LocalOp) -> list[ir.Value]:
    heads, own = Heads(local.part(_HEADS), 1), local.operands[:3]
    causal = bool(local.info.attribute("unidirectional", 0))
    return [attend_in_ring(local, heads, _ROWS, own, scale=scale_of(local.info), causal=causal)]


@sharding_rule("com.microsoft.Attention")
def merged(info: OpInfo) -> Rule | None:
    """Split batch and heads; weights that are parameters are split in blocks of three projections.

    Else each rank gathers its heads of the merged projections.
    """
    sizes = _merged_sizes(info)
    if sizes is None or None in info.shape(0)[1:]:
        return None
    heads = int(info.attribute("num_heads"))
    batch = {0: 0, 3: 0, 4: 1, **aligned(info, 5, dim=0, rank=4)}
    split = {4: 2, **aligned(info, 5, dim=1, rank=4)}
    past = info.operand(4)
    keys = count(info.sizes(0)[1:2]) + (0 if past is None else count(past.sizes[3:4]))
    work = (info.shape(0)[2] or 1) * sum(sizes) // heads + keys * sum(sizes[1:]) // heads
    factors = [
        present_factor(info, batch, {0: 0, 1: 1}, can_split=_is_per_batch(info, 3)),
        present_factor(info, split, {0: 2, 1: 2}, size=heads),
        window_loop([info.sizes(0)[1], work]),
    ]
    return rule_of(info, factors, localize=_localize_merged, flops_per_point=2.0)


@packing("com.microsoft.Attention")
def _packed_merged(info: OpInfo) -> Packed | None:
    sizes = _merged_sizes(info)
    if sizes is None or sum(sizes) != info.shape(1)[1]:
        return None
    bias = [] if info.operand(2) is None else [((2, 0), sizes)]
    units = (int(info.attribute("num_heads")),) * len(sizes)
    return Packed(read=(((1, 1), sizes), *bias), factor=_HEADS, units=units)


def _merged_sizes(info: OpInfo) -> tuple[int, ...] | None:
    """Return the columns of the weights for query, key, and value, ``None`` if unknown."""
    sizes, columns = info.attribute("qkv_hidden_sizes"), info.shape(1)[1]
    if sizes:
        return tuple(sizes)
    return None if columns is None else (columns // 3,) * 3


def _localize_merged(local: LocalOp) -> list[ir.Value]:
    sizes, heads = _merged_sizes(local.info) or (), int(local.info.attribute("num_heads"))
    divided = dict(local.divide_attributes(_HEADS, "num_heads"))
    if local.info.attribute("qkv_hidden_sizes"):
        own = local.part(_HEADS)
        divided["qkv_hidden_sizes"] = ints_attr([size // heads * own for size in sizes])
    return local.clone(_shares(local, {1: 1, 2: 0}, sizes), divided)
