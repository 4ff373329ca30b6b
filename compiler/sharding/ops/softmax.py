"""Softmax, LogSoftmax, and Hardmax, also split along the normalised dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic, sum_bytes
from tensoropt.compiler.sharding.rule.factors import FactorMap, axis_of, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.mlir import ir

__all__ = ["hardmax", "logarithms", "normalised_dims", "softmax"]

# A maximum, a difference, an exponential (8, as for Exp), a sum, and a quotient (4, as for Div).
_FLOPS = 15.0


def normalised_dims(info: OpInfo) -> range:
    """Return the dimensions over which results sum to 1: all from `axis` on before opset 13."""
    rank = len(info.shape(0))
    if info.version < 13:
        return range(axis_of(info, 1, rank), rank)
    axis = axis_of(info, -1, rank)
    return range(axis, axis + 1)


@sharding_rule("Softmax", "LogSoftmax")
def softmax(info: OpInfo) -> Rule:
    """Split every dimension; a normalised dimension needs two all-reduces inside."""
    reduced = normalised_dims(info)
    factors = _loops(info, reduced, can_split=info.version >= BROADCAST_VERSION)
    kept = tuple(dim for dim in range(len(factors)) if dim not in reduced)
    result = info.results[0]
    assert result is not None
    item_bytes = sum_bytes(result.dtype, result.item_bytes)
    inner = InnerStep(tuple(reduced), kept, item_bytes)
    return rule_of(info, factors, localize=_localize, flops_per_point=_FLOPS, inner=(inner, inner))


@sharding_rule("Hardmax")
def hardmax(info: OpInfo) -> Rule:
    """Split all dimensions except the dimensions searched for the largest element."""
    return rule_of(info, _loops(info, normalised_dims(info), can_split=False), flops_per_point=1.0)


def _loops(info: OpInfo, reduced: range, *, can_split: bool) -> list[FactorMap]:
    return [
        FactorMap({0: dim}, {0: dim}, can_split=can_split or dim not in reduced, padded=True)
        for dim in range(len(info.shape(0)))
    ]


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return a copy; over a split dimension, compute maximum and sum over all ranks."""
    dims = normalised_dims(local.info)
    axes = tuple(sorted(axis for dim in dims for axis in local.axes(dim)))
    if not axes:
        return local.clone()
    make, x = Arithmetic(local), local.operands[0]
    for dim in dims:  # padding must affect neither maximum nor sum
        x = local.fill_padding(x, dim, dim, -math.inf)
    x = make.wide(x)
    if local.info.name == "LogSoftmax":
        return [make.as_result(logarithms(make, x, dims, axes))]
    _, exponentials, total = _exponentials(make, x, dims, axes)
    return [make.as_result(make.binary("Div", exponentials, total))]


def logarithms(make: Arithmetic, x: ir.Value, dims: Sequence[int], axes: Sequence[int]) -> ir.Value:
    """Return the log-probabilities over dimensions ``dims`` and the ranks along ``axes``."""
    shifted, _, total = _exponentials(make, x, dims, axes)
    return make.binary("Sub", shifted, make.unary("Log", total))


def _exponentials(
    make: Arithmetic, x: ir.Value, dims: Sequence[int], axes: Sequence[int]
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return ``x`` minus its maximum, the exponentials of the difference, and their sum."""
    shifted = make.binary("Sub", x, make.max(x, dims, axes))
    exponentials = make.unary("Exp", shifted)
    return shifted, exponentials, make.sum(exponentials, dims, axes)
