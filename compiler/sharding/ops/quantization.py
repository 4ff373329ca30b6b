"""QuantizeLinear and DequantizeLinear: elementwise, with a scale per tensor, channel or block."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, axis_of, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@sharding_rule(
    "QuantizeLinear",
    "DequantizeLinear",
    "com.microsoft.QuantizeLinear",
    "com.microsoft.DequantizeLinear",
)
def _quantize(info: OpInfo) -> Rule:
    """Split every dimension; if blocks share a scale, split between blocks."""
    rank, scale = len(info.shape(0)), info.shape(1)
    axis = axis_of(info, 1, rank) if rank else 0
    block_size = int(info.attribute("block_size", 0))
    factors = []
    for dim in range(rank):
        if block_size and dim == axis:
            blocks = scale[axis]
            if blocks is None or info.shape(0)[axis] != blocks * block_size:
                blocks = 1  # the last block is incomplete
            factors.append(FactorMap(_places(info, dim, dim), {0: dim}, size=blocks))
        elif block_size:
            factors.append(FactorMap(_places(info, dim, dim), {0: dim}))
        elif len(scale) == 1 and scale[0] != 1 and dim == axis:  # a scale per channel
            factors.append(FactorMap(_places(info, dim, 0), {0: dim}))
        else:
            factors.append(FactorMap({0: dim}, {0: dim}))
    return rule_of(info, factors, flops_per_point=2.0)


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
