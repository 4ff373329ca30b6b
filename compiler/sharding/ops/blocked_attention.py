"""`tensoropt.BlockedAttention` and its gradient, of long sequences, in blocks and in rings.

A rank expands them into operators of the standard.
"""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.attending import Attending, block_rows
from tensoropt.compiler.sharding.rule.factors import FactorMap, aligned, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.ring import Ring
from tensoropt.compiler.sharding.rule.ring_steps import Extents
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.layout import Reduction

__all__ = ["blocked", "blocked_gradient"]

_MASK, _GRADIENT_MASK = 3, 6
_KEYS, _VALUES = 1, 2

# Operands of the gradient with the rows of the result: query, result, its totals and gradient.
_ROWS = (0, 3, 4, 5)


@sharding_rule("tensoropt.BlockedAttention")
def blocked(info: OpInfo) -> Rule:
    """Split batch, heads and the sequence, along which keys and values travel in a ring."""
    return _rule(info, mask=_MASK, rows=(0,), made=(0, 1), gradients=False)


@sharding_rule("tensoropt.BlockedAttentionGradient")
def blocked_gradient(info: OpInfo) -> Rule:
    """Split batch, heads and the sequence; gradients of keys and values travel with these.

    Gradients of keys that several split heads share are partial sums.
    """
    return _rule(info, mask=_GRADIENT_MASK, rows=_ROWS, made=(0,), gradients=True)


def _rule(
    info: OpInfo, *, mask: int, rows: tuple[int, ...], made: tuple[int, ...], gradients: bool
) -> Rule:
    """Return the rule; ``rows`` and ``made`` are the operands and results with rows of queries."""
    rank = info.rank(0)
    row, last = rank - 2, rank - 1
    shape, keys = info.shape(0), info.shape(_VALUES)
    factors, shared = list[FactorMap](), set[int]()
    for dim in range(row):
        own = keys[dim] == shape[dim]
        if not own:
            shared.add(dim)
        alone = {} if not own else dict.fromkeys((_KEYS, _VALUES), dim)
        results = {**dict.fromkeys(made, dim), **(alone if gradients else {})}
        operands = {**dict.fromkeys(rows, dim), **alone, **aligned(info, mask, dim=dim, rank=rank)}
        reduction: Reduction | None = "sum" if gradients and not own else None
        factors.append(
            present_factor(info, operands, results, reduction=reduction, padded=reduction is None)
        )
    extents = _extents(info, list(range(row)), shared)
    square = _is_square(info)
    along = {_KEYS: last, _VALUES: row} if square else {}
    factors.append(
        present_factor(
            info,
            {**dict.fromkeys(rows, row), **along, **aligned(info, mask, dim=row, rank=rank)},
            {**dict.fromkeys(made, row), **(along if gradients else {})},
            size=extents.pairs,
            reduction="sum" if gradients and not square else None,
            can_split=square or not extents.causal,
        )
    )
    sizes = 3 * extents.key + 2 * extents.value if gradients else extents.key + extents.value
    factors.append(window_loop([keys[row] or 1, sizes]))
    blocks = -(-extents.rows // block_rows(extents.rows, extents.key + extents.value))
    share = 1.0 + 1.0 / blocks if extents.causal else 1.0  # of pairs of rows, if causal
    ring = (extents.ring_gradients() if gradients else extents.ring()) if square else ()
    return rule_of(
        info,
        factors,
        localize=_localize_gradient if gradients else _localize,
        flops_per_point=2.0 * share,
        inner=(*extents.blocks(keys[row] or 1, gradients=gradients), *ring),
    )


def _is_square(info: OpInfo) -> bool:
    """Return whether rows and keys are of one sequence."""
    return info.shape(0)[-2] == info.shape(_VALUES)[-2]


def _extents(info: OpInfo, dims: list[int], shared: set[int]) -> Extents:
    query = info.operand(0)
    assert query is not None
    *_, rows, size = (n or 1 for n in query.shape)
    value = info.shape(_VALUES)[-1] or 1
    own = tuple(dim for dim in dims if dim not in shared)
    kind, causal = (query.dtype, query.item_bytes), bool(info.attribute("causal", 0))
    return Extents(tuple(dims), own, len(dims), rows, size, value, *kind, causal)


def _sequence(local: LocalOp) -> tuple[int, ...]:
    """Return the axes of a ring; there is none if only queries are split."""
    sequence = len(local.rule.results[0]) - 2
    return local.axes(sequence) if sequence in local.rule.operands[_KEYS] else ()


def _localize(local: LocalOp) -> list[ir.Value]:
    make = Arithmetic(local)
    q, k, v, *mask = local.operands
    attending, axes = Attending(make), _sequence(local)
    how = Ring(make, attending, axes) if axes else attending
    causal = local.info.attribute("causal", 0)
    part = how.causal(q, k, v) if causal else how.all(q, k, v, *mask)
    return [make.as_result(x, index) for index, x in enumerate(part)]


def _localize_gradient(local: LocalOp) -> list[ir.Value]:
    make = Arithmetic(local)
    q, k, v, y, total, dy, *mask = local.operands
    attending, axes = Attending(make), _sequence(local)
    change = make.mul(make.wide(dy), make.wide(y))
    rows = [total, make.reduce("ReduceSum", change, [len(local.rule.results[0]) - 1]), dy]
    how = Ring(make, attending, axes) if axes else attending
    causal = local.info.attribute("causal", 0)
    found = (
        how.causal_gradients(q, k, v, rows) if causal else how.all_gradients(q, k, v, rows, *mask)
    )
    return [make.as_result(x, index) for index, x in enumerate(found)]
