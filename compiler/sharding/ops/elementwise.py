"""Elementwise operators with broadcasting: every dimension of the result can be split."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Linear, Rule
from tensoropt.compiler.sharding.ops.randomness import seeded_rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, aligned, linear_in, rule_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule

__all__ = ["broadcast_loops"]

# Floating-point operations per element: 1 if the hardware has the operation, more for the
# polynomial of a transcendental function.
_UNARY: dict[str, float] = {
    **dict.fromkeys(("Abs", "Floor", "Ceil", "Round", "Sign", "Relu", "Clip", "Shrink"), 1.0),
    **dict.fromkeys(("IsNaN", "IsInf", "Not", "BitwiseNot", "ThresholdedRelu"), 1.0),
    "BitCast": 0.0,
    **dict.fromkeys(("LeakyRelu", "HardSigmoid", "HardSwish", "Softsign"), 4.0),
    **dict.fromkeys(("Sqrt", "Reciprocal"), 4.0),
    **dict.fromkeys(("Exp", "Log", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Erf"), 8.0),
    **dict.fromkeys(("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"), 8.0),
    **dict.fromkeys(("Sigmoid", "Softplus", "Elu", "Selu", "Celu"), 10.0),
    **dict.fromkeys(("Gelu", "Mish", "Swish"), 14.0),
    **dict.fromkeys(("com.microsoft.Gelu", "com.microsoft.QuickGelu"), 14.0),
}

_NARY: dict[str, float] = {
    **dict.fromkeys(("Mod", "Min", "Max"), 1.0),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), 1.0),
    **dict.fromkeys(("And", "Or", "Xor", "BitShift"), 1.0),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), 1.0),
    "PRelu": 2.0,
    "Pow": 16.0,
    **dict.fromkeys(("com.microsoft.BiasGelu", "com.microsoft.FastGelu"), 15.0),
    "com.microsoft.GatedAdd": 2.0,
    "com.microsoft.ScaledSiLU": 12.0,
    "com.microsoft.LinearAttentionGate": 22.0,
    # All elements share one scale and zero point.
    "com.microsoft.QLinearWhere": 6.0,
    **dict.fromkeys(("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"), 6.0),
    **dict.fromkeys(("com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearSigmoid"), 6.0),
}

_EXACT_CASTS = {"float16": {"float32", "float64"}, "bfloat16": {"float32", "float64"}}
_EXACT_CASTS |= {"float32": {"float64"}}


def broadcast_loops(info: OpInfo) -> list[FactorMap]:
    """Return a factor per dimension of the results, which all have one shape.

    Operands align from the right; a dimension of size 1 that is stretched is on no factor. A
    symbolic dimension may turn out to be 1, so its factor cannot be split.
    """
    present = [index for index, result in enumerate(info.results) if result is not None]
    shape = info.result_shape(present[0])
    operands, rank = range(len(info.operands)), len(shape)
    return [
        FactorMap(aligned(info, *operands, dim=dim, rank=rank), dict.fromkeys(present, dim))
        for dim in range(rank)
    ]


def _elementwise(info: OpInfo, flops: float, *groups: tuple[int, ...]) -> Rule | None:
    """Return the rule; ``groups`` are the operand groups in which it is linear."""
    if info.attribute("broadcast", 0) and info.version < 7:
        return None  # an attribute aligns the operands, not from the right
    linear = linear_in(info, *groups)
    return rule_of(info, broadcast_loops(info), linear=linear, flops_per_point=flops)


@sharding_rule(*_UNARY)
def _unary(info: OpInfo) -> Rule | None:
    return _elementwise(info, _UNARY[info.name])


@sharding_rule(*_NARY)
def _nary(info: OpInfo) -> Rule | None:
    if info.name == "PRelu" and info.version < 7:
        return None  # a slope per channel, not aligned from the right
    return _elementwise(info, _NARY[info.name])


@sharding_rule("Neg", "Identity")
def _linear_unary(info: OpInfo) -> Rule | None:
    return _elementwise(info, 1.0 if info.name == "Neg" else 0.0, (0,))


@sharding_rule("Add", "Sub", "Sum", "Mean")
def _sum(info: OpInfo) -> Rule | None:
    together = tuple(range(len(info.operands)))
    return _elementwise(info, float(max(1, len(together) - 1)), together)


@sharding_rule("Mul")
def _mul(info: OpInfo) -> Rule | None:
    return _elementwise(info, 1.0, (0,), (1,))


@sharding_rule("Div")
def _div(info: OpInfo) -> Rule | None:
    """Pass partial sums of the dividend through a float division by a known nonzero divisor.

    Integer quotients are rounded, so they do not add up. A zero divisor can create infinities of
    both signs, which have no sum.
    """
    divisor, result = info.literal(1), info.results[0]
    is_float = result is not None and "float" in result.dtype
    adds = is_float and divisor is not None and bool(divisor.all())
    return _elementwise(info, 4.0, *([(0,)] if adds else []))


@sharding_rule("Where")
def _where(info: OpInfo) -> Rule | None:
    return _elementwise(info, 1.0, (1, 2))


@sharding_rule("Cast")
def _cast(info: OpInfo) -> Rule | None:
    return _elementwise(info, 1.0, *([(0,)] if _is_exact_cast(info) else []))


@sharding_rule("CastLike")
def _cast_like(info: OpInfo) -> Rule:
    """Keep the second operand whole and off the factors: only its type matters."""
    factors = [
        FactorMap({0: factor.results[0]}, factor.results) for factor in broadcast_loops(info)
    ]
    linear = linear_in(info, (0,)) if _is_exact_cast(info) else ()
    return rule_of(info, factors, linear=linear, flops_per_point=1.0)


def _is_exact_cast(info: OpInfo) -> bool:
    """Return whether the cast commutes with addition: it changes nothing, or widens a float."""
    source, result = info.operand(0), info.results[0]
    if source is None or result is None:
        return False
    same = source.dtype == result.dtype
    return same or result.dtype in _EXACT_CASTS.get(source.dtype, ())


@sharding_rule("Dropout")
def _dropout(info: OpInfo) -> Rule | None:
    """Split Dropout at inference; replicate it in training, where it draws random numbers."""
    if info.version < 12 and _may_train(info):
        return None
    if _may_train(info):
        return seeded_rule(info)
    linear: tuple[Linear, ...] = ()
    if len(info.results) < 2 or info.results[1] is None:  # partial masks do not add up
        linear = linear_in(info, (0,))
    factors = [
        FactorMap({0: factor.results[0]}, factor.results) for factor in broadcast_loops(info)
    ]
    return rule_of(info, factors, linear=linear)


def _may_train(info: OpInfo) -> bool:
    if info.version < 7:
        return not info.attribute("is_test", 0)
    if len(info.operands) < 3 or info.operands[2] is None:
        return False
    mode = info.literal(2)
    return mode is None or bool(mode.any())
