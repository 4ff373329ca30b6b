"""Gradients of reductions: the gradient of the result is spread over the reduced dimensions."""

from __future__ import annotations

import math

from tensoropt.compiler.sharding.ops.reduction import reduced_dims
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects.build import element_type, int_attr
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@gradient("ReduceSum")
def reduce_sum(b: Backward) -> Gradients:
    """dY, broadcast along the reduced dimensions."""
    return b.first(b.make.expand(_spread(b, b.dy), b.shape(0)))


@gradient("ReduceMean")
def reduce_mean(b: Backward) -> Gradients:
    """dY / n for n elements in each mean."""
    count = math.prod(b.shape(0)[dim] for dim in _dims(b))
    share = b.make.scaled(_spread(b, b.dy), 1.0 / count)
    return b.first(b.make.expand(share, b.shape(0)))


@gradient("ReduceMax", "ReduceMin")
def reduce_extreme(b: Backward) -> Gradients:
    """dY, divided equally among the elements that equal the result."""
    make = b.make
    equal = make.compare("Equal", b.operand(0), _spread(b, b.result()))
    flags = make.cast(equal, element_type(b.dy))
    dims = _dims(b)
    share = _spread(b, b.dy)
    if dims:
        ties = make.reduce("ReduceSum", flags, dims)  # 0 if operand and result round differently
        share = make.div(share, make.binary("Max", ties, make.scalar(1.0, ties)))
    return b.first(make.mul(flags, share))


@gradient("ReduceSumSquare")
def reduce_sum_square(b: Backward) -> Gradients:
    """2 dY X."""
    return b.first(b.make.mul(b.make.scaled(_spread(b, b.dy), 2.0), b.operand(0)))


@gradient("ReduceL1")
def reduce_l1(b: Backward) -> Gradients:
    """dY sign(X)."""
    return b.first(b.make.mul(_spread(b, b.dy), b.make.unary("Sign", b.operand(0))))


@gradient("ReduceL2")
def reduce_l2(b: Backward) -> Gradients:
    """dY X / Y, 0 where Y is zero."""
    make, y = b.make, _spread(b, b.result())
    is_zero = make.compare("Equal", y, make.scalar(0.0, y))
    share = make.div(_spread(b, b.dy), make.where(is_zero, make.scalar(1.0, y), y))
    return b.first(make.mul(share, b.operand(0)))


@gradient("ReduceLogSum")
def reduce_log_sum(b: Backward) -> Gradients:
    """dY / sum(X) = dY exp(-Y)."""
    make = b.make
    share = make.mul(b.dy, make.unary("Exp", make.unary("Neg", b.result())))
    return b.first(make.expand(_spread(b, share), b.shape(0)))


@gradient("ReduceLogSumExp")
def reduce_log_sum_exp(b: Backward) -> Gradients:
    """dY exp(X - Y)."""
    make = b.make
    share = make.unary("Exp", make.sub(b.operand(0), _spread(b, b.result())))
    return b.first(make.mul(share, _spread(b, b.dy)))


@gradient("ReduceProd")
def reduce_prod(b: Backward) -> Gradients:
    """dY times the product of the other elements.

    It is P / X, where P is the product of all nonzero elements, or zero if another element is zero.
    """
    make, x = b.make, b.operand(0)
    zero, one = make.scalar(0.0, x), make.scalar(1.0, x)
    is_zero = make.compare("Equal", x, zero)
    filled = make.where(is_zero, one, x)
    flags = make.where(is_zero, one, zero)
    product, zeros = filled, flags
    if dims := _dims(b):
        product = make.reduce("ReduceProd", filled, dims)
        zeros = make.reduce("ReduceSum", flags, dims)
    alone = make.compare("Equal", zeros, flags)
    others = make.where(alone, make.div(product, filled), zero)
    return b.first(make.mul(_spread(b, b.dy), others))


@gradient("CumSum")
def cum_sum(b: Backward) -> Gradients:
    """dY summed from the other end."""
    backward = {
        "reverse": int_attr(1 - b.info.attribute("reverse", 0)),
        "exclusive": int_attr(b.info.attribute("exclusive", 0)),
    }
    return b.first(b.make.onnx("CumSum", [b.dy, b.operand(1)], b.dy.type, **backward))


def _dims(b: Backward) -> list[int]:
    dims = reduced_dims(b.info)
    if dims is None:
        raise b.unsupported("expected operand 1, the axes, to be a constant, got: a computed value")
    return dims


def _spread(b: Backward, y: ir.Value) -> ir.Value:
    """Return a result, or its gradient, with reduced dimensions of size 1."""
    dims = _dims(b)
    return b.make.unsqueeze(y, dims) if dims and not b.info.attribute("keepdims", 1) else y
