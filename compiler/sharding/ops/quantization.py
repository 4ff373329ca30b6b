"""QuantizeLinear and DequantizeLinear: elementwise, with a scale per tensor, channel or block."""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.layout.sizes import is_power_of_two
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, axis_of, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.build import element_type, int_attr, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["divides_often", "smaller_blocks"]

# Types of zero points that ONNX Runtime's Gather takes, and the wider types of those it does not.
_GATHERED = ("int8", "uint8", "int16", "uint16", "int32")
_WIDENED = {"int4": "i8", "uint4": "ui8", "int2": "i8", "uint2": "ui8"}


@sharding_rule(
    "QuantizeLinear",
    "DequantizeLinear",
    "com.microsoft.QuantizeLinear",
    "com.microsoft.DequantizeLinear",
)
def _quantize(info: OpInfo) -> Rule:
    """Split every dimension; if blocks share a scale, split between blocks or inside of them."""
    rank, scale = len(info.shape(0)), info.shape(1)
    axis = axis_of(info, 1, rank) if rank else 0
    block_size = int(info.attribute("block_size", 0))
    factors = []
    for dim in range(rank):
        if block_size and dim == axis:
            factors.append(_block_loop(info, axis, block_size))
        elif block_size:
            factors.append(FactorMap(_places(info, dim, dim), {0: dim}))
        elif len(scale) == 1 and scale[0] != 1 and dim == axis:  # a scale per channel
            factors.append(FactorMap(_places(info, dim, 0), {0: dim}))
        else:
            factors.append(FactorMap({0: dim}, {0: dim}))
    return rule_of(
        info, factors, localize=_take_scales if block_size else None, flops_per_point=2.0
    )


def _block_loop(info: OpInfo, axis: int, block_size: int) -> FactorMap:
    """Return the factor along blocks that share a scale.

    If few numbers of ranks divide the blocks, parts may end inside of a block. Each rank then has
    all scales, and takes the scales of its part.
    """
    size, count, points = info.shape(0)[axis], info.shape(1)[axis] or 1, info.operand(2)
    complete = size == count * block_size
    if complete and divides_often(count):
        return FactorMap(_places(info, axis, axis), {0: axis}, size=count)
    if points is None or points.dtype in (*_GATHERED, *_WIDENED):
        return FactorMap({0: axis}, {0: axis}, counted=True)
    return FactorMap(_places(info, axis, axis), {0: axis}, size=count if complete else 1)


def divides_often(count: int) -> bool:
    """Return whether a number of blocks divides by the powers of two up to 8, or is one of them."""
    return count % 8 == 0 or is_power_of_two(count)


def smaller_blocks(local: LocalOp, factor: int, part: int, block_size: int) -> tuple[ir.Value, int]:
    """Return the block of each smaller block of a rank's part, and the size of smaller blocks.

    They divide both the part, of ``part`` elements, and the blocks of ``block_size``.
    """
    import numpy as np

    size = math.gcd(part, block_size)
    ranks = np.arange(local.pieces(factor))[:, None]
    starts = ranks * part + np.arange(0, part, size)
    return local.axis_constant(starts // block_size, local.axes(factor)), size


def _take_scales(local: LocalOp) -> list[ir.Value]:
    """Return the op of a part that may end inside of a block, with smaller blocks."""
    axis = axis_of(local.info, 1, len(local.info.shape(0)))
    factor = local.rule.operands[0][axis]
    if factor is None or local.pieces(factor) == 1 or local.rule.operands[1][axis] is not None:
        return local.clone()
    make, operands = Arithmetic(local), dict[int, ir.Value]()
    blocks, size = smaller_blocks(
        local, factor, local.part(factor), int(local.info.attribute("block_size"))
    )
    operands[1] = make.take(local.operands[1], blocks, axis)
    points = local.info.operand(2)
    if points is not None:
        wide, kind = local.operands[2], element_type(local.operands[2])
        if points.dtype in _WIDENED:
            wide = make.cast(wide, ir.Type.parse(_WIDENED[points.dtype]))
        operands[2] = make.cast(make.take(wide, blocks, axis), kind)
    return local.clone(operands, {"block_size": int_attr(size)})


def _places(info: OpInfo, dim: int, scale_dim: int) -> dict[int, int]:
    """Return the dimensions of the data, the scale, and the zero point, if present."""
    zero_point = {} if info.operand(2) is None else {2: scale_dim}
    return {0: dim, 1: scale_dim, **zero_point}


@sharding_rule("com.microsoft.QLinearConcat")
def _concat(info: OpInfo) -> Rule:
    """Split every dimension except the axis; each tensor has one scale and zero point."""
    rank, parts = len(info.result_shape()), range(2, len(info.operands), 3)
    axis = axis_of(info, 0, rank)
    factors = [FactorMap(dict.fromkeys(parts, d), {0: d}) for d in range(rank) if d != axis]
    return rule_of(info, factors, flops_per_point=4.0)


@sharding_rule("com.microsoft.QLinearSoftmax")
def _softmax(info: OpInfo) -> Rule:
    """Split every dimension except the normalised ones: their sums are rounded once."""
    rank = len(info.shape(0))
    axis = axis_of(info, -1, rank)
    last = axis + 1 if info.attribute("opset", 13) >= 13 else rank
    dims = [dim for dim in range(rank) if not axis <= dim < last]
    whole = window_loop(info.sizes(0)[axis:last])
    factors = [*(FactorMap({0: dim}, {0: dim}) for dim in dims), whole]
    return rule_of(info, factors, flops_per_point=20.0)


@sharding_rule("DynamicQuantizeLinear")
def _dynamic(info: OpInfo) -> Rule:
    """Split every dimension; two all-reduces find the range of all elements."""
    factors = [FactorMap({0: dim}, {0: dim}) for dim in range(len(info.shape(0)))]
    inner = InnerStep(tuple(range(len(factors))), (), 4)
    localize = _quantize_by_range if factors else None
    return rule_of(info, factors, localize=localize, flops_per_point=4.0, inner=(inner, inner))


def _quantize_by_range(local: LocalOp) -> list[ir.Value]:
    dims = range(len(local.info.shape(0)))
    axes = tuple(sorted(axis for dim in dims for axis in local.axes(dim)))
    if not axes:
        return local.clone()
    make, x = Arithmetic(local), local.operands[0]
    zero = make.scalar(0.0, x)
    largest = make.binary("Max", make.reshape(make.max(x, dims, axes), []), zero)
    least = make.binary("Min", make.reshape(make.min(x, dims, axes), []), zero)
    scale, zero_point = _parameters(make, least, largest)
    y = local.onnx("QuantizeLinear", [x, scale, zero_point], local.result_types[0])
    return [y, scale, zero_point]


def _parameters(make: Arithmetic, least: ir.Value, largest: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return scale and zero point of the range from ``least`` to ``largest``, which contains 0.

    As in the standard: the range over 255 steps, and the step at 0, rounded to even. If all
    elements are 0, any scale is correct; ONNX Runtime uses 1.
    """
    steps, one = make.scalar(255.0, least), make.scalar(1.0, least)
    flags = tensor_type([], ir.IntegerType.get_signless(1))
    flat = make.local.onnx("Equal", [least, largest], flags)
    scale = make.binary("Div", make.binary("Sub", largest, least), steps)
    scale = make.local.onnx("Where", [flat, one, scale], least.type)
    start = make.unary("Neg", make.binary("Div", least, scale))
    inside = make.binary("Max", make.binary("Min", start, steps), make.scalar(0.0, least))
    return scale, make.as_result(make.unary("Round", inside), 2)
