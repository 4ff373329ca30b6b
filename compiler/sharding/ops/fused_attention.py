"""`tensoropt.Attention` and its gradient: kernels of ours, which keep no scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.compiler.layout.rule import Minor, Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, aligned, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.seen import mean_seen
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.mlir import ir

__all__ = ["attention", "attention_gradient"]

_BATCH, _HEADS, _ROWS, _QUERIES = range(4)
"""The factors; the last one is over the query heads that share a head of keys."""

_RANK = 4


@dataclass(frozen=True)
class _Places:
    """Places of operands and results: with the rows of queries, of keys, and of the bias."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    bias: int
    results: tuple[int, ...]
    key_gradients: tuple[int, ...] = ()
    bias_gradient: tuple[int, ...] = ()

    @property
    def query(self) -> int:
        return self.keys[0] - 1

    @property
    def lengths(self) -> int:
        return self.bias + 1

    @property
    def offset(self) -> int:
        return self.bias + 2


_FORWARD = _Places((0,), (1, 2), 3, (0, 1))
_BACKWARD = _Places((0, 1, 4, 5), (2, 3), 6, (0,), (1, 2), (3,))


@sharding_rule("tensoropt.Attention")
def attention(info: OpInfo) -> Rule | None:
    """Split batch, heads of keys, query heads of each, and rows of the query."""
    return _rule(info, _FORWARD)


@sharding_rule("tensoropt.AttentionGradient")
def attention_gradient(info: OpInfo) -> Rule | None:
    """Split batch, heads of keys, query heads of each, and rows of the query.

    Gradients of keys and values are partial sums over rows and over query heads of one key head,
    the gradient of a bias over all that it is repeated along.
    """
    return _rule(info, _BACKWARD)


def _rule(info: OpInfo, places: _Places) -> Rule | None:
    query, key, value = (info.shape(places.query + index) for index in range(3))
    if None in (*query, *key, *value):
        return None
    heads, shared, keys = query[1] or 1, key[1] or 1, key[2] or 1
    size, width, each = query[3] or 1, value[3] or 1, heads // shared
    sizes = 3 * size + 2 * width if places.key_gradients else size + width
    minor, lead = _along(info, places, _HEADS, keyed=False), len(info.operands)
    minors: list[Minor] = [(index, dim, _QUERIES) for index, dim in minor.operands.items()]
    minors += [(lead + index, dim, _QUERIES) for index, dim in minor.results.items()]
    whole_heads = _along(info, places, _HEADS, keyed=True)
    if each > 1:
        whole_heads = replace(whole_heads, size=shared, padded=False)
    rows, window = query[2] or 1, int(info.attribute("window", 0))
    first = 0 if info.operand(places.offset) is None else keys - rows
    seen = mean_seen(first, first + rows, window) if info.attribute("causal", 0) else keys
    return rule_of(
        info,
        [
            _along(info, places, _BATCH, keyed=True),
            whole_heads,
            replace(_along(info, places, _ROWS, keyed=False), padded=False),
            FactorMap({}, size=each, reduction=minor.reduction),
            window_loop([keys, sizes]),
        ],
        localize=_localize,
        flops_per_point=2.0 * min(seen / keys, 1.0),
        minors=minors if each > 1 else (),
    )


def _along(info: OpInfo, places: _Places, dim: int, *, keyed: bool) -> FactorMap:
    """Return the factor along a dimension of queries, and of keys if ``keyed``."""
    operands = dict.fromkeys(places.queries, dim)
    results = dict.fromkeys(places.results, dim)
    if keyed:
        operands |= dict.fromkeys(places.keys, dim)
        results |= dict.fromkeys(places.key_gradients, dim)
    biased = aligned(info, places.bias, dim=dim, rank=_RANK)
    operands |= biased
    if biased:
        results |= dict.fromkeys(places.bias_gradient, dim)
    if dim == _BATCH and info.operand(places.lengths) is not None:
        operands[places.lengths] = 0
    present = {index for index, result in enumerate(info.results) if result is not None}
    partial = not present <= results.keys()
    kept = {index: dim for index, dim in results.items() if index in present}
    return FactorMap(
        operands, kept, reduction="sum" if partial else None, padded=not partial and keyed
    )


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return the op of a rank; if the rows are split, it is told the place of its first row."""
    import numpy as np

    axes, info = local.axes(_ROWS), local.info
    counts = info.attribute("causal", 0) or info.attribute("window", 0)
    if not axes or not counts:
        return local.clone()
    places = _FORWARD if info.name == "tensoropt.Attention" else _BACKWARD
    starts = np.arange(local.pieces(_ROWS), dtype=np.int64).reshape(-1, 1) * local.part(_ROWS)
    offset = local.axis_constant(starts, axes)
    operands = list(local.operands)
    if info.operand(places.offset) is not None:
        offset = Arithmetic(local).add(operands[places.offset], offset)
    operands = operands[: places.offset]
    missing = places.offset - len(operands)
    operands += [local.no_value() for _ in range(missing)]
    return replace(local, operands=[*operands, offset]).clone()
