"""Operators that repeat elements: Expand and Tile."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.sizes import has_local_sizes, local_sizes
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@sharding_rule("Expand")
def _expand(info: OpInfo) -> Rule | None:
    """Split every dimension; a broadcast dimension is split without splitting the operand."""
    unknown_rank = info.shape(1)[0] is None and None in info.result_shape()
    if unknown_rank or not has_local_sizes(info, 1):
        return None
    source, rank = info.shape(0), len(info.result_shape())
    shift = rank - len(source)
    factors = [
        FactorMap(
            {0: dim - shift} if dim >= shift and source[dim - shift] != 1 else {},
            {0: dim},
            padded=True,
        )
        for dim in range(rank)
    ]
    return rule_of(info, factors, linear=linear_in(info, (0,)), localize=_expand_locally)


def _expand_locally(local: LocalOp) -> list[ir.Value]:
    shape = local.local_result_shape()
    count = local.info.shape(1)[0]
    first = 0 if count is None else len(shape) - count
    sizes = local_sizes(local, 1, shape[first:], local.result_pieces()[first:])
    return local.clone({1: sizes})


@sharding_rule("Tile")
def _tile(info: OpInfo) -> Rule | None:
    """Split every dimension; the major loop of a repeated dimension is its repetition."""
    if info.version < 6 or not has_local_sizes(info, 1):
        return None  # repeats a single axis before opset 6
    factors = [
        FactorMap({0: dim}, {0: dim}) if count == 1 else FactorMap({}, {0: dim}, size=count)
        for dim, count in enumerate(_repeats(info))
        if count is not None and count > 0
    ]
    return rule_of(info, factors, linear=linear_in(info, (0,)), localize=_tile_locally)


def _repeats(info: OpInfo) -> list[int | None]:
    """Return the repetitions of each dimension, ``None`` if they are unknown."""
    repeats: list[int] | None = info.literal_ints(1)
    if repeats is not None:
        return list(repeats)
    sizes = zip(info.shape(0), info.result_shape(), strict=True)
    return [whole // own if own and whole is not None else None for own, whole in sizes]


def _tile_locally(local: LocalOp) -> list[ir.Value]:
    dims = zip(_repeats(local.info), local.rule.operands[0], local.rule.results[0], strict=True)
    counts = []
    for count, own, end in dims:
        # Pieces of the elements themselves divide no repetitions.
        pieces = 1 if end is None or own == end else local.pieces(end)
        counts.append(None if count is None else count // pieces)
    return local.clone({1: local_sizes(local, 1, tuple(counts), [1] * len(counts))})
