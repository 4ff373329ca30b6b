"""Reductions: a split reduced dimension leaves partial results, or is reduced inside."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Filled, InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import (
    BROADCAST_VERSION,
    NARROW,
    Arithmetic,
    sum_bytes,
)
from tensoropt.compiler.sharding.rule.factors import FactorMap, adds_up, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.layout import Reduction

__all__ = ["extremum", "logarithmic", "mean", "product", "reduced_dims", "sums"]

_FLOATS = frozenset((*NARROW, "float32", "float64"))

# Element types that runtimes reduce by maximum and minimum.
_ORDERED = _FLOATS | {"int8", "uint8", "int32", "int64"}


def reduced_dims(info: OpInfo) -> list[int] | None:
    """Return the reduced dimensions, ``None`` if they are known only at run time.

    They come from the attribute `axes` or from operand 1. Without either, all dimensions are
    reduced, or none if `noop_with_empty_axes` is set.
    """
    rank = len(info.shape(0))
    axes = info.attribute("axes")
    if axes is None and info.operand(1) is not None:
        axes = info.literal_ints(1)
        if axes is None:
            return None
    if not axes:
        return [] if info.attribute("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({axis + rank if axis < 0 else axis for axis in axes})


def _loops(
    info: OpInfo, dims: list[int], reduction: Reduction | None, *, can_split: bool
) -> list[FactorMap]:
    """Return a factor per dimension of the operand, in order."""
    can_pad = reduction is not None
    keeps = info.attribute("keepdims", 1) == 1
    factors: list[FactorMap] = []
    position = 0
    for dim in range(len(info.shape(0))):
        if dim in dims:
            own = FactorMap({0: dim}, reduction=reduction, can_split=can_split, padded=can_pad)
            factors.append(own)
            position += keeps
        else:
            factors.append(FactorMap({0: dim}, {0: position}, padded=True))
            position += 1
    return factors


@sharding_rule("ReduceSum", "ReduceSumSquare", "ReduceL1")
def sums(info: OpInfo) -> Rule | None:
    """Split every dimension; a reduced dimension leaves partial sums."""
    dims = reduced_dims(info)
    if dims is None:
        return None
    factors = _loops(info, dims, "sum", can_split=adds_up(info))
    linear = linear_in(info, (0,)) if info.name == "ReduceSum" else ()
    return rule_of(info, factors, linear=linear, flops_per_point=1.0)


@sharding_rule("ReduceMax", "ReduceMin")
def extremum(info: OpInfo) -> Rule | None:
    """Split every dimension; a reduced dimension leaves partial maxima or minima."""
    dims, result = reduced_dims(info), info.results[0]
    if dims is None or result is None:
        return None
    reduction: Reduction = "max" if info.name == "ReduceMax" else "min"
    factors = _loops(info, dims, reduction, can_split=result.dtype in _ORDERED)
    return rule_of(info, factors, flops_per_point=1.0)


@sharding_rule("ReduceMean")
def mean(info: OpInfo) -> Rule | None:
    """Split every dimension; a reduced dimension leaves partial sums, scaled by each rank.

    Integer means are rounded, so only floating-point means add up.
    """
    dims = reduced_dims(info)
    if dims is None:
        return None
    floating = _is_floating(info)
    factors = _loops(info, dims, "sum", can_split=floating and info.version >= BROADCAST_VERSION)
    linear = linear_in(info, (0,)) if floating else ()
    return rule_of(info, factors, linear=linear, localize=Filled(_scale_mean), flops_per_point=1.0)


def _scale_mean(local: LocalOp) -> list[ir.Value]:
    (own,) = local.clone()
    dims = [dim for dim in reduced_dims(local.info) or [] if local.pieces(dim) > 1]
    share = 1.0  # of all points on this rank, including padding
    for dim in dims:
        size = local.rule.factors[dim].size
        share *= local.part(dim) / size if isinstance(size, int) else 1.0 / local.pieces(dim)
    return [Arithmetic(local).scaled(own, share) if dims else own]


@sharding_rule("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def logarithmic(info: OpInfo) -> Rule | None:
    """Split every dimension; the sum over a reduced dimension is reduced inside."""
    dims = reduced_dims(info)
    if dims is None:
        return None
    can_split = bool(dims) and _is_floating(info) and info.version >= BROADCAST_VERSION
    factors = _loops(info, dims, None, can_split=can_split)
    kept = tuple(dim for dim in range(len(info.shape(0))) if dim not in dims)
    result = info.results[0]
    assert result is not None
    step = InnerStep(tuple(dims), kept, sum_bytes(result.dtype, result.item_bytes))
    # The exponentials need the maximum first.
    inner = (step, step) if info.name == "ReduceLogSumExp" else (step,)
    return rule_of(info, factors, localize=_reduce_inside, flops_per_point=2.0, inner=inner)


def _is_floating(info: OpInfo) -> bool:
    result = info.results[0]
    return result is not None and result.dtype in _FLOATS


def _reduce_inside(local: LocalOp) -> list[ir.Value]:
    dims = reduced_dims(local.info) or []
    axes = tuple(sorted(axis for dim in dims for axis in local.axes(dim)))
    if not axes:
        return local.clone()
    make = Arithmetic(local)
    x = make.wide(local.operands[0])
    if local.info.name == "ReduceL2":
        whole = make.unary("Sqrt", make.sum(make.binary("Mul", x, x), dims, axes))
    elif local.info.name == "ReduceLogSum":
        whole = make.unary("Log", make.sum(x, dims, axes))
    else:
        whole = _log_sum_exp(make, x, dims, axes)
    whole = make.as_result(whole)
    if local.info.attribute("keepdims", 1):
        return [whole]
    return [make.squeeze(whole, dims)]


def _log_sum_exp(make: Arithmetic, x: ir.Value, dims: list[int], axes: tuple[int, ...]) -> ir.Value:
    """Return the logarithm of a sum of exponentials, scaled so that the largest term is 1.

    An infinite maximum is made finite first, because the difference of infinities is NaN.
    """
    largest = make.finite(make.max(x, dims, axes))
    terms = make.unary("Exp", make.binary("Sub", x, largest))
    return make.binary("Add", make.unary("Log", make.sum(terms, dims, axes)), largest)


@sharding_rule("ReduceProd")
def product(info: OpInfo) -> Rule | None:
    """Split only the dimensions that are not reduced: there is no product all-reduce."""
    dims = reduced_dims(info)
    if dims is None:
        return None
    return rule_of(info, _loops(info, dims, None, can_split=False), flops_per_point=1.0)
