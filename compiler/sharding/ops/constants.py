"""Operators that create tensors: constants, shapes, ranges."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import replicated_rule, sharding_rule
from tensoropt.compiler.sharding.rule.sizes import local_sizes
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@sharding_rule("Constant", "Range", "EyeLike")
def _whole(info: OpInfo) -> Rule:
    """Replicate the result, which is computed from no operand that could be split."""
    return replace(replicated_rule(info), flops_per_point=0.0)


@sharding_rule("ConstantOfShape")
def _constant_of_shape(info: OpInfo) -> Rule:
    factors = [FactorMap({}, {0: dim}, padded=True) for dim in range(len(info.result_shape()))]
    return rule_of(info, factors, localize=_constant_of_shape_locally)


def _constant_of_shape_locally(local: LocalOp) -> list[ir.Value]:
    sizes = local_sizes(local, 0, local.local_result_shape(), local.result_pieces())
    return local.clone({0: sizes})


@sharding_rule("Shape", "Size")
def _shape(info: OpInfo) -> Rule:
    """Split any dimension of the operand: local sizes times pieces are the global sizes."""
    factors = [FactorMap({0: dim}) for dim in range(len(info.shape(0)))]
    return rule_of(info, factors, localize=_shape_locally)


def _shape_locally(local: LocalOp) -> list[ir.Value]:
    import numpy as np

    pieces = [local.pieces(factor) for factor in range(len(local.rule.factors))]
    [value] = local.clone()
    if local.info.name == "Size":
        counts = np.array(np.prod(pieces), np.int64)
    else:
        start, end = local.info.attribute("start", 0), local.info.attribute("end", len(pieces))
        counts = np.array(pieces[start:end], np.int64)
    if (counts == 1).all():
        return [value]
    return [local.onnx("Mul", [value, local.constant(counts)], value.type)]
