"""`tensoropt.Attention` and its gradient: kernels of ours, which keep no scores.

Keys and values are split in two ways. If an axis splits them alone, each rank has all queries. It
combines the logarithms of sums with the other ranks, and its term of the result is a partial sum.
If an axis splits rows and keys together, keys and values travel in a ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.compiler.layout.rule import InnerStep, Joint, Minor, Rule
from tensoropt.compiler.sharding.ops.attention_parts import (
    BACKWARD,
    BATCH,
    FORWARD,
    HEADS,
    KEYS,
    QUERIES,
    ROWS,
    Places,
    has_halves,
    localize,
)
from tensoropt.compiler.sharding.rule.factors import FactorMap, aligned, present_factor, rule_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.ring_steps import Extents
from tensoropt.compiler.sharding.rule.seen import mean_seen
from tensoropt.compiler.sharding.rule.windows import window_loop

__all__ = ["attention", "attention_gradient"]

_RANK = 4

_RING = (ROWS, KEYS)
"""The factors that an axis splits together if keys and values travel."""

_DRAWN = 28
"""Elements of a head that take as long as to draw the factor of a weight in dropout: with heads of
64, a forward pass takes a fifth more (`bench/speed/long_attention.py`)."""

_LOGARITHM_BYTES, _LOGARITHM_PASSES = 4, 7
"""Bytes of the logarithm of a row, and passes over logarithms until a term has its weight."""

_LOGARITHMS = 1
"""The result with the logarithms, which ranks with parts of the keys combine."""


@sharding_rule("tensoropt.Attention")
def attention(info: OpInfo) -> Rule | None:
    """Split batch, heads of keys, query heads of each, rows of the query, keys, and both."""
    return _rule(info, FORWARD)


@sharding_rule("tensoropt.AttentionGradient")
def attention_gradient(info: OpInfo) -> Rule | None:
    """Split batch, heads of keys, query heads of each, rows of the query, keys, and both.

    Gradients of keys and values are partial sums over rows and over query heads of one key head,
    gradients of queries over keys, the gradient of a bias over all that it is repeated along. Keys
    do not travel if a bias has a gradient.
    """
    return _rule(info, BACKWARD)


def _rule(info: OpInfo, places: Places) -> Rule | None:
    query, key, value = (info.shape(places.query + index) for index in range(3))
    if None in (*query, *key, *value):
        return None
    heads, shared, keys = query[1] or 1, key[1] or 1, key[2] or 1
    size, width, each = query[3] or 1, value[3] or 1, heads // shared
    sizes = 3 * size + 2 * width if places.key_gradients else size + width
    if info.operand(places.row_seeds) is not None:
        sizes += _DRAWN
    minor, lead = _along(info, places, HEADS, keyed=False), len(info.operands)
    minors: list[Minor] = [(index, dim, QUERIES) for index, dim in minor.operands.items()]
    minors += [(lead + index, dim, QUERIES) for index, dim in minor.results.items()]
    whole_heads = _along(info, places, HEADS, keyed=True)
    if each > 1:
        whole_heads = replace(whole_heads, size=shared, padded=False)
    causal, halves = bool(info.attribute("causal", 0)), has_halves(info, places)
    extents = _extents(info, places, causal=halves)
    share = 0.5 if causal else 1.0  # half of the keys are hidden
    if causal and (window := int(info.attribute("window", 0))):
        share = mean_seen(0, query[2] or 1, window) / keys
    travels = query[2] == keys and len(info.results) == len(places.results + places.key_gradients)
    steps = [*_combining(info, extents)] if places is FORWARD else []
    return rule_of(
        info,
        [
            _along(info, places, BATCH, keyed=True),
            whole_heads,
            replace(_along(info, places, ROWS, keyed=False), padded=False),
            FactorMap({}, size=each, reduction=minor.reduction),
            _along_keys(info, places, extents.pairs),
            window_loop([sizes]),
        ],
        joint=(Joint(_RING),) if travels else (),
        reduced=(_LOGARITHMS,) if places is FORWARD else (),
        growing=_growing(info, places, halves=halves) if query[2] == keys else (),
        localize=localize,
        flops_per_point=2.0 * share * (2 if halves else 1),  # of pairs of keys, if in halves
        inner=(*steps, *(_travelling(info, places, extents) if travels else ())),
        minors=minors if each > 1 else (),
    )


def _growing(info: OpInfo, places: Places, *, halves: bool) -> tuple[tuple[int, ...], ...]:
    """Return the factors with parts of unequal work, because rows see no later keys.

    The parts of a ring in halves have equal work.
    """
    starts = info.operand(places.offset) is None and not info.attribute("window", 0)
    if not (starts and info.attribute("causal", 0)):
        return ()
    return ((ROWS,), (KEYS,)) if halves else ((ROWS,), (KEYS,), _RING)


def _along(info: OpInfo, places: Places, dim: int, *, keyed: bool) -> FactorMap:
    """Return the factor along a dimension of queries, and of keys if ``keyed``."""
    operands = dict.fromkeys(places.queries, dim)
    results = dict.fromkeys(places.results, dim)
    if keyed:
        operands |= dict.fromkeys(places.keys, dim)
        results |= dict.fromkeys(places.key_gradients, dim)
    biased = aligned(info, places.bias, dim=dim, rank=_RANK)
    operands |= biased | aligned(info, places.row_seeds, dim=dim, rank=_RANK)
    if biased:
        results |= dict.fromkeys(places.bias_gradient, dim)
    if dim == BATCH and info.operand(places.lengths) is not None:
        operands[places.lengths] = 0
    present = {index for index, result in enumerate(info.results) if result is not None}
    partial = not present <= results.keys()
    kept = {index: dim for index, dim in results.items() if index in present}
    return FactorMap(
        operands, kept, reduction="sum" if partial else None, padded=not partial and keyed
    )


def _along_keys(info: OpInfo, places: Places, pairs: int | None) -> FactorMap:
    """Return the factor along the keys, or along ``pairs`` of keys if a ring needs these."""
    results = dict.fromkeys(places.key_gradients, 2) | dict.fromkeys(places.bias_gradient, 3)
    masks = aligned(info, places.bias, places.key_seeds, dim=3, rank=_RANK)
    operands = {**dict.fromkeys(places.keys, 2), **masks}
    return present_factor(info, operands, results, size=pairs, reduction="sum", padded=False)


def _extents(info: OpInfo, places: Places, *, causal: bool) -> Extents:
    query = info.operand(places.query)
    assert query is not None
    rows, size = (n or 1 for n in query.shape[2:])
    width = info.shape(places.keys[1])[3] or 1
    queries, kind = (BATCH, HEADS, QUERIES), (query.dtype, query.item_bytes)
    return Extents(
        queries, (BATCH, HEADS), KEYS, rows, size, width, *kind, causal=causal, by_kernel=True
    )


def _combining(info: OpInfo, extents: Extents) -> Iterator[InnerStep]:
    """Yield the steps that give the result of a rank with some of the keys its weight."""
    rows, result = (*extents.queries, ROWS), info.results[0]
    assert result is not None
    yield InnerStep((KEYS,), rows, _LOGARITHM_BYTES, lone=True, times=2)
    yield InnerStep((KEYS,), rows, _LOGARITHM_BYTES, "copy", lone=True, times=_LOGARITHM_PASSES)
    yield InnerStep((KEYS,), rows, extents.value * extents.wide_bytes, "copy", lone=True)
    if extents.wide_bytes > result.item_bytes:
        cast = extents.value * (extents.wide_bytes + result.item_bytes) // 2
        yield InnerStep((KEYS,), rows, cast, "copy", lone=True, times=2)


def _travelling(info: OpInfo, places: Places, extents: Extents) -> Iterator[InnerStep]:
    """Yield the steps of a ring, and the bias of the keys of each turn."""
    steps = extents.ring_gradients() if places is BACKWARD else extents.ring()
    for step in steps:
        yield replace(step, factors=_RING, joint=True)
    seeds = info.operand(places.key_seeds)
    if seeds is not None:
        yield from _gathered((KEYS,), seeds.item_bytes)
    bias = info.operand(places.bias)
    if bias is None:
        return
    leading = (BATCH, HEADS, ROWS)  # the dimensions have the numbers of their factors
    dims = [dim for dim in leading if aligned(info, places.bias, dim=dim, rank=_RANK)]
    if HEADS in dims:
        dims.append(QUERIES)
    if ROWS in dims:
        yield InnerStep(_RING, (*dims, KEYS), bias.item_bytes, "copy", joint=True)
        return
    yield from _gathered((*dims, KEYS), bias.item_bytes)


def _gathered(dims: tuple[int, ...], item_bytes: int) -> Iterator[InnerStep]:
    """Yield the gather of a value for all keys, and the choice of the keys of each turn."""
    yield InnerStep(_RING, dims, item_bytes, "all_gather", joint=True)
    yield InnerStep(_RING, dims, item_bytes, "turn", joint=True, times=2)
