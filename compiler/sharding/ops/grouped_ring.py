"""GroupQueryAttention of a long prompt, in which keys and values travel in a ring.

A sequence may be shorter than the prompt and padded at its end: no earlier row sees these keys, so
the lengths of the sequences change only rows and slots of caches that nothing reads.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.heads import heads_of, local_heads, rotated
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.ring_rule import attend_in_ring, ring_extents, scale_of
from tensoropt.compiler.sharding.rule.ring_steps import Extents
from tensoropt.dialects.build import sizes_of
from tensoropt.dialects.mlir import ir

__all__ = ["attend_grouped", "grouped_extents"]

_PAST, _TOTAL, _COSINES, _POSITIONS = (3, 4), 6, 7, 9
_SCORES = 3


def grouped_extents(info: OpInfo, heads: int, rows: int, queries: int) -> Extents | None:
    """Return the sizes of a ring over the factor ``rows``, ``None`` if there is none.

    The others are the factors over heads. There is no ring over the keys of a cache, which start
    before the rows, nor without causality, as padding would be seen. Windows, sinks, biases and a
    smooth softmax change scores or sums in ways that blocks do not have.
    """
    query, width = info.operand(0), info.result_shape()[2]
    assert query is not None
    if width is None or None in query.shape or not _is_prompt(info) or not _is_plain(info):
        return None
    size, keys = width // heads_of(info).queries, (0, heads)
    return ring_extents(
        query,
        query.shape[1],
        (size, size),
        queries=(*keys, queries),
        keys=keys,
        sequence=rows,
        causal=True,
    )


def _is_prompt(info: OpInfo) -> bool:
    """Return whether rows and keys are all tokens, by the shapes."""
    rows, own = info.shape(0)[1], info.operand(1)
    past = [info.shape(index)[2] for index in _PAST if info.operand(index) is not None]
    total, kept = info.literal_ints(_TOTAL), info.results[1:2]
    known = [total[0]] if total else [cache.shape[2] for cache in kept if cache is not None]
    return (
        not any(size != 0 for size in past)
        and known == [rows]
        and (own is None or own.shape[1] == rows)
    )


def _is_plain(info: OpInfo) -> bool:
    """Return whether the scores are causal products, rotated or capped at most."""
    window, rows = int(info.attribute("local_window_size", -1)), info.shape(0)[1] or 0
    others = [*info.operands[_POSITIONS:], *info.results[_SCORES:]]
    if any(other is not None for other in others) or 0 <= window < rows:
        return False
    return bool(info.attribute("causal", 1)) and int(info.attribute("smooth_softmax", 0)) <= 0


def attend_grouped(
    local: LocalOp, packed: ir.Value, *, heads: int, rows: int, queries: int
) -> list[ir.Value]:
    """Return result and caches of a rank with a part of the rows.

    ``packed`` is the rank's operand 0: the query, or all three; the rest are the factors.
    """
    info, make, own = local.info, Arithmetic(local), local_heads(local, heads, queries)
    if info.operand(1) is None:
        bounds = pairwise(accumulate(own.packed_sizes(sizes_of(packed)[2]), initial=0))
        query, key, value = (make.slice(packed, 2, *ends) for ends in bounds)
    else:
        query, key, value = packed, *local.operands[1:3]
    if info.attribute("do_rotary", 0):
        query, key = (
            _rotated(local, make, x, count, rows)
            for x, count in ((query, own.queries), (key, own.shared))
        )
    y = attend_in_ring(
        local,
        own,
        rows,
        (query, key, value),
        scale=scale_of(info),
        softcap=float(info.attribute("softcap", 0.0)),
        causal=True,
    )
    caches = [own.unpack(make, x) for x in (key, value)]
    kept = zip(info.results[1:], caches, strict=False)
    return [y, *(local.no_value() if result is None else cache for result, cache in kept)]


def _rotated(local: LocalOp, make: Arithmetic, x: ir.Value, count: int, rows: int) -> ir.Value:
    """Return query or key rotated by the angles of the rank's rows."""
    import numpy as np

    starts = np.arange(local.pieces(rows), dtype=np.int64) * sizes_of(x)[1]
    first = local.axis_constant(starts.reshape(-1, 1), local.axes(rows))
    tables = local.operands[_COSINES:_POSITIONS]
    interleaved = bool(local.info.attribute("rotary_interleaved", 0))
    return rotated(make, x, count, first, tables, interleaved=interleaved)
