"""Losses: partial sums over the samples of a rank, and over the labels among its classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.ops.indexing import mask_inside, position, scalar, where
from tensoropt.compiler.sharding.ops.softmax import logarithms
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic, sum_bytes
from tensoropt.compiler.sharding.rule.factors import FactorMap, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.build import element_type, int_attr, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import is_no_value

__all__ = ["loss"]

# The softmax takes a maximum, a difference, an exponential, a sum, and a logarithm per class.
_FLOPS = {"NegativeLogLikelihoodLoss": 1.0, "SoftmaxCrossEntropyLoss": 15.0}

_LIKELIHOOD = "NegativeLogLikelihoodLoss"

_NO_CLASS = -1
"""Label that adds nothing to the loss."""


@sharding_rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(info: OpInfo) -> Rule:
    """Split samples, positions, and classes.

    Each sample or position adds a term to the sum, or has its own loss. With split classes, the
    rank that has the class of a label adds its loss. A mean divides by the weights of all samples,
    which are summed inside; a mean over no samples is not expanded.
    """
    shape, how = info.shape(0), str(info.attribute("reduction", "mean"))
    can_split = how != "mean" or 0 not in shape
    weights = {} if info.operand(2) is None else {2: 0}
    classes = FactorMap(
        {0: 1, **weights},
        _logarithms(info, 1),
        reduction="sum",
        can_split=can_split and 0 not in shape,
        counted=True,
        padded=True,
    )
    factors = [classes]
    for dim in (0, *range(2, len(shape))):
        target = max(dim - 1, 0)
        places = {0: target} if how == "none" else {}
        made = places | _logarithms(info, dim)
        factors.append(
            FactorMap(
                {0: dim, 1: target},
                made,
                reduction=None if how == "none" else "sum",
                can_split=can_split,
                padded=True,
                fills=True,
            )
        )
    flops = _FLOPS[info.name]
    return rule_of(info, factors, localize=_localize, flops_per_point=flops, inner=_inner(info))


def _inner(info: OpInfo) -> tuple[InnerStep, ...]:
    """Return the reductions inside: weights of a mean, and a softmax over split classes."""
    tensor = info.operand(0)
    assert tensor is not None
    samples = tuple(range(1, tensor.rank))
    item_bytes = sum_bytes(tensor.dtype, tensor.item_bytes)
    is_softmax = info.name.startswith("Softmax")
    over_classes = (InnerStep((0,), samples, item_bytes),) * (2 if is_softmax else 0)
    is_mean = str(info.attribute("reduction", "mean")) == "mean"
    total = (InnerStep((0, *samples), (), tensor.item_bytes),) if is_mean else ()
    return (*over_classes, *total)


def _logarithms(info: OpInfo, dim: int) -> dict[int, int]:
    """Map the second result, the log-probabilities, to its dimension at ``dim``, if present."""
    return {1: dim} if len(info.results) > 1 and info.results[1] is not None else {}


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return the losses of the rank's samples and classes; a mean divides by all weights."""
    factors = range(len(local.rule.factors))
    axes = tuple(sorted(axis for factor in factors for axis in local.axes(factor)))
    if not axes:
        return local.clone()
    make, how = Arithmetic(local), str(local.info.attribute("reduction", "mean"))
    kept = _fill_samples(local)
    kept["reduction"] = ir.StringAttr.get("sum" if how == "mean" else how)
    if local.axes(0):
        kept["ignore_index"] = int_attr(_NO_CLASS)
        operands = _of_classes(local, make)
        own = [local.onnx(_LIKELIHOOD, operands, local.result_types[0], **kept)]
        own += [operands[0]] * (len(local.result_types) - 1)
    else:
        operands, own = local.operands, local.clone(attributes=kept)
    if how != "mean":
        return own
    weights = local.all_reduce(_weights(make, operands, kept), axes, "sum")
    return [make.binary("Div", own[0], weights), *own[1:]]


def _fill_samples(local: LocalOp) -> dict[str, ir.Attribute]:
    """Fill the padding of samples and positions with ignored labels; return `ignore_index`."""
    padded = [factor for factor in range(1, len(local.rule.factors)) if local.is_padded(factor)]
    for factor in padded:
        dims = [dims.index(factor) for dims in local.rule.operands[:2]]
        for index, (dim, fill) in enumerate(zip(dims, (0.0, _ignored(local)), strict=True)):
            local.operands[index] = local.fill_padding(local.operands[index], dim, factor, fill)
    given = "ignore_index" in local.op.attributes
    return {"ignore_index": int_attr(_ignored(local))} if padded or given else {}


def _ignored(local: LocalOp) -> int:
    return int(local.info.attribute("ignore_index", _NO_CLASS))


def _of_classes(local: LocalOp, make: Arithmetic) -> list[ir.Value]:
    """Return the log-probabilities of a rank's classes, their labels, and their weights."""
    scores, labels, *weights = local.operands
    if local.info.name.startswith("Softmax"):
        filled = make.wide(local.fill_padding(scores, 1, 0, -math.inf))
        scores = make.cast(logarithms(make, filled, (1,), local.axes(0)), element_type(scores))
    scores = local.fill_padding(scores, 1, 0, 0.0)
    weights = [one if is_no_value(one) else local.fill_padding(one, 0, 0, 0.0) for one in weights]
    size = local.info.shape(0)[1]
    assert size is not None
    own = position(local, size, 0)
    ignored = make.compare("Equal", labels, scalar(local, 1, _ignored(local)))
    counted = make.unary("Not", ignored)
    mine = make.onnx("And", [counted, mask_inside(local, own, local.part(0))], counted.type)
    return [scores, where(local, mine, own, scalar(local, 1, _NO_CLASS)), *weights]


def _weights(
    make: Arithmetic, operands: Sequence[ir.Value], kept: Mapping[str, ir.Attribute]
) -> ir.Value:
    """Return the sum of the weights of the rank's labels, without ignored labels.

    It is the loss if every log-probability is -1.
    """
    local, (scores, *others) = make.local, operands
    kind = ir.RankedTensorType(scores.type)
    rank = tensor_type([kind.rank], ir.IntegerType.get_signless(64))
    shape = local.onnx("Shape", [scores], rank)
    minus = local.onnx("Expand", [make.scalar(-1.0, scores), shape], scores.type)
    return local.onnx(_LIKELIHOOD, [minus, *others], local.result_types[0], **kept)
