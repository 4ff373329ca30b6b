"""Losses: partial sums over the samples that a rank has; the classes are whole."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["loss"]

# Of the softmax per class: a maximum, a difference, an exponential, a sum, a logarithm.
_FLOPS = {"NegativeLogLikelihoodLoss": 1.0, "SoftmaxCrossEntropyLoss": 15.0}


@sharding_rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(info: OpInfo) -> Rule:
    """Return samples and positions: each adds its part to the sum, or has a loss of its own.

    A mean is over the weights of all samples, which are added up inside; that of none is not
    written out.
    """
    shape, how = info.shape(0), str(info.attribute("reduction", "mean"))
    can_split = how != "mean" or 0 not in shape
    factors = [FactorMap({0: 1}, _logarithms(info, 1), can_split=False)]
    for dim in (0, *range(2, len(shape))):
        target = max(dim - 1, 0)
        places = {0: target} if how == "none" else {}
        reduction = None if how == "none" else "sum"
        made = places | _logarithms(info, dim)
        factors.append(
            FactorMap({0: dim, 1: target}, made, reduction=reduction, can_split=can_split)  # type: ignore[arg-type]
        )
    tensor = info.operand(0)
    assert tensor is not None
    total = InnerStep(tuple(range(1, len(factors))), (), tensor.item_bytes)
    mean = how == "mean"
    return rule_of(
        info,
        factors,
        localize=_localize if mean else None,
        flops_per_point=_FLOPS[info.name],
        inner=(total,) if mean else (),
    )


def _logarithms(info: OpInfo, dim: int) -> dict[int, int]:
    """Return where the second result, the logarithms of all probabilities, runs along ``dim``."""
    return {1: dim} if len(info.results) > 1 and info.results[1] is not None else {}


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return the sum of the rank's losses over the weights of all samples."""
    factors = range(1, len(local.rule.factors))
    axes = tuple(sorted(axis for factor in factors for axis in local.axes(factor)))
    if not axes:
        return local.clone()
    make, how = Arithmetic(local), ir.StringAttr.get("sum")
    own = local.clone(attributes={"reduction": how})
    weights = local.all_reduce(_weights(make, how), axes, "sum")
    return [make.binary("Div", own[0], weights), *own[1:]]


def _weights(make: Arithmetic, how: ir.Attribute) -> ir.Value:
    """Return the sum of the weights of the rank's targets, ignored ones left out.

    It is the loss where the logarithm of every probability is -1.
    """
    local = make.local
    scores, kind = local.operands[0], ir.RankedTensorType(local.operands[0].type)
    rank = tensor_type([kind.rank], ir.IntegerType.get_signless(64))
    shape = local.onnx("Shape", [scores], rank)
    minus = local.onnx("Expand", [make.scalar(-1.0, scores), shape], scores.type)
    kept = {"reduction": how}
    if "ignore_index" in local.op.attributes:
        kept["ignore_index"] = local.op.attributes["ignore_index"]
    operands = [minus, *local.operands[1:]]
    return local.onnx("NegativeLogLikelihoodLoss", operands, local.result_types[0], **kept)
