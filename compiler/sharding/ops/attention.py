"""Standard attention with grouped heads, masks, and a KV cache."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, aligned, present_factor
from tensoropt.compiler.sharding.rule.heads import Heads, heads_of, local_heads
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.ring_rule import (
    attend_in_ring,
    attention_rule,
    ring_extents,
)
from tensoropt.compiler.sharding.rule.ring_steps import Extents
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.build import int_attr
from tensoropt.dialects.mlir import ir

__all__ = ["attention"]

# Indices of the factors over heads of key and value, and over the query heads of each.
_BATCH, _HEADS, _ROWS, _QUERIES = 0, 1, 2, 4

_MASK = 3


@sharding_rule("Attention")
def attention(info: OpInfo) -> Rule | None:
    """Split batch, heads, rows of the query, and long sequences.

    Query and cache are `b h s d` or, with packed heads, `b s (h d)`. Several query heads may share
    one head of key and value; the shared heads are split, in the cache too, and then the query
    heads of each. Rows are independent unless causality counts them from the first row. In a long
    sequence without a cache, keys and values are split along with the rows, and travel in a ring.
    """
    if len({len(info.shape(index)) for index in range(3)}) > 1:
        return None
    packed = len(info.shape(0)) == 3
    head, row = (2, 1) if packed else (1, 2)
    batch = {0: 0, 1: 0, 2: 0, 4: 0, 5: 0, 6: 0, **aligned(info, 3, dim=0, rank=4)}
    heads = {0: head, 1: head, 2: head, 4: 1, 5: 1, **aligned(info, 3, dim=1, rank=4)}
    rows = {0: row, **aligned(info, 3, dim=2, rank=4)}
    minors = {0: head, **aligned(info, 3, dim=1, rank=4)}
    counted = heads_of(info)
    shared = counted.shared if packed else info.shape(1)[1]
    extents = _extents(info, head, counted)
    factors = [
        present_factor(info, batch, dict.fromkeys(range(4), 0), padded=True),
        present_factor(info, heads, {0: head, 1: 1, 2: 1, 3: 1}, size=shared),
        present_factor(info, rows, {0: row, 3: 2}, can_split=not _counts_rows(info)),
        _products(info, head, counted),
        FactorMap({}, size=counted.each),
    ]
    places = [(index, dim, _QUERIES) for index, dim in minors.items()]
    places += [
        (len(info.operands) + index, dim, _QUERIES)
        for index, dim in ((0, head), (3, 1))
        if index < len(info.results) and info.results[index] is not None
    ]
    return attention_rule(info, factors, extents, whole=_localize, ring=_attend, minors=places)


def _extents(info: OpInfo, head: int, heads: Heads) -> Extents | None:
    """Return the sizes of a ring, ``None`` if the attention is short or reads other keys."""
    (query, *_), sizes = info.operands, [info.shape(index) for index in range(3)]
    assert query is not None
    row = 3 - head
    rows, keys, values = sizes[0][row], sizes[1][-1], sizes[2][-1]
    if keys is None or values is None or any(None in own for own in sizes):
        return None
    if head == 2:
        keys, values = keys // heads.shared, values // heads.shared
    causal, mask = bool(info.attribute("is_causal", 0)), info.operand(_MASK)
    used = [i for i in range(4, len(info.operands)) if info.operands[i] is not None]
    plain = not used and all(result is None for result in info.results[1:])
    windows = max(info.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    same = {own[row] for own in sizes} == {rows} and (mask is None or not causal)
    if mask is not None:
        same = same and mask.shape[-1] in (1, rows)
    if not (plain and same and windows < 0) or info.attribute("softmax_precision") is not None:
        return None
    lead = _BATCH, _HEADS
    return ring_extents(
        query,
        rows,
        (keys, values),
        queries=(*lead, _QUERIES),
        keys=lead,
        sequence=_ROWS,
        causal=causal,
    )


def _counts_rows(info: OpInfo) -> bool:
    """Return whether the visible keys of a row depend on the number of rows before it."""
    windows = (info.attribute("left_window_size", -1), info.attribute("right_window_size", -1))
    return bool(info.attribute("is_causal", 0)) or max(windows) >= 0


def _products(info: OpInfo, head: int, heads: Heads) -> FactorMap:
    """Return the factor that stays whole.

    It covers the old and new keys, and the elements of a key and a value head.
    """
    past = info.operand(4)
    keys = count([info.sizes(1)[3 - head]]) + (0 if past is None else count([past.sizes[2]]))
    if head == 1:
        sizes = (info.shape(0)[3] or 1) + (info.shape(2)[3] or 1)
    else:
        sizes = (info.shape(0)[2] or heads.queries) // heads.queries
        sizes += (info.shape(2)[2] or heads.shared) // heads.shared
    return window_loop([keys, sizes])


def _localize(local: LocalOp) -> list[ir.Value]:
    divided = local.divide_attributes(_HEADS, "q_num_heads", "kv_num_heads")
    if "q_num_heads" in divided:
        divided["q_num_heads"] = int_attr(local_heads(local, _HEADS, _QUERIES).queries)
    return local.clone(attributes=divided)


def _attend(local: LocalOp) -> list[ir.Value]:
    info, heads = local.info, local_heads(local, _HEADS, _QUERIES)
    mask = None if info.operand(_MASK) is None else local.operands[_MASK]
    y = attend_in_ring(
        local,
        heads,
        _ROWS,
        local.operands[:3],
        mask,
        scale=info.attribute("scale"),
        softcap=float(info.attribute("softcap", 0.0)),
        causal=bool(info.attribute("is_causal", 0)),
    )
    return [y]
