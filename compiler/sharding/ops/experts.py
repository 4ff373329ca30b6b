"""Mixtures of experts: tokens, experts, and the inner features of experts can be split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.build import int_attr, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["mixture", "quantized_mixture"]

# Index of the factor over experts.
_EXPERTS = 1

# First opset in which TopK sorts and ScatterElements exists.
_ROUTING_VERSION = 11

# Negligible next to any weight, but large enough for a logarithm in half precision.
_NO_WEIGHT = {"f16": 1e-7}

# Layer of each operand of packed zero points; its scales are operand 3 * layer.
_ZERO_POINTS = {11: 1, 12: 2, 13: 3}


@dataclass(frozen=True)
class _Places:
    """Roles of the operands: widening layers, the narrowing layer, its bias, and a third layer.

    ``widening`` operands have their features in dimension 1, ``narrowing`` operands in dimension 2.
    """

    widening: tuple[int, ...]
    narrowing: tuple[int, ...]
    last_bias: int
    third: int


_PLAIN = _Places((2, 3, 6, 7), (4,), 5, 6)
_QUANTIZED = _Places((2, 3, 4, 8, 9, 10, 11, 13), (5, 6, 12), 7, 8)


@sharding_rule("com.microsoft.MoE")
def mixture(info: OpInfo) -> Rule:
    """Split tokens, experts, and the features between an expert's layers.

    A rank with some of the experts computes the routing over all experts and mixes its own; the sum
    over the ranks is the whole result. The last layer sums over features, so its bias is partial if
    they are split.

    ONNX Runtime 1.31 computes this operator incorrectly on a CPU if its input is an intermediate
    value without later readers: it overwrites that input with the result. This also happens on one
    device.
    """
    return _rule(info, _PLAIN)


@sharding_rule("com.microsoft.QMoE")
def quantized_mixture(info: OpInfo) -> Rule | None:
    """Return the rule of a mixture of experts, with features split between blocks and bytes.

    ``None`` for weights that are prepacked for one device or are not integers: no CPU kernel runs
    them, so the rule cannot be proved.
    """
    if info.attribute("quant_type", "int") != "int" or info.attribute("weights_prepacked", -1) > 0:
        return None
    return _rule(info, _QUANTIZED)


def _rule(info: OpInfo, places: _Places) -> Rule:
    rank, features = len(info.shape(0)), _features(info, places)
    layers = (*places.widening, *places.narrowing, places.last_bias)
    mine = {index: 0 for index in layers if info.operand(index) is not None}
    factors = [
        present_factor(
            info, {0: 0, 1: 0, 14: 0}, {0: 0}, size=info.shape(0)[0] if rank == 3 else None
        ),
        FactorMap(
            mine,
            reduction="sum",
            can_split=_can_route(info),
            counted=True,
            padded=True,
            fills=True,
        ),
        features,
        window_loop([_work(info, places) // (features.size or 1)]),
    ]
    bias = (places.last_bias,) if info.operand(places.last_bias) is not None else ()
    share = min(1.0, int(info.attribute("k", 1)) / count(info.shape(2)[:1]))
    return rule_of(info, factors, additive=bias, localize=_localize, flops_per_point=2.0 * share)


def _can_route(info: OpInfo) -> bool:
    """Return whether a rank can compute the routing over all experts.

    For quantized experts, the runtime decides whether softmax weights are normalised over all
    experts or over the selected experts, unless the model requires them to sum to 1.
    """
    known = len(info.shape(0)) == 2 or None not in info.shape(0)
    sparse = bool(info.attribute("use_sparse_mixer", 0))
    normal = info.operand(14) is not None or info.attribute("normalize_routing_weights", 0)
    clear = info.name != "com.microsoft.QMoE" or bool(normal)
    return info.standard_version >= _ROUTING_VERSION and known and clear and not sparse


def _work(info: OpInfo, places: _Places) -> int:
    """Return the products of one expert for the tokens of one first index of the input."""
    fused = 2 if info.attribute("swiglu_fusion", 0) else 1
    widened, third = count(info.shape(2)[1:2]), info.operand(places.third)
    features = widened + widened // fused + (0 if third is None else widened)
    return count(info.sizes(0)[1:]) * features


def _features(info: OpInfo, places: _Places) -> FactorMap:
    """Return the factor over the features between the layers.

    It stays whole if two kinds of features are stored as two consecutive blocks.
    """
    dims = dict.fromkeys(places.widening, 1) | dict.fromkeys(places.narrowing, 2)
    ranks = {i: tensor.rank for i in dims if (tensor := info.operand(i)) is not None}
    where = {i: dims[i] for i, rank in ranks.items() if dims[i] < rank}
    sizes = [count([info.sizes(i)[dim]]) for i, dim in where.items()]
    apart = info.attribute("swiglu_fusion", 0) != 2
    bytes_filled = all(_fills_bytes(info, i, where) for i in _ZERO_POINTS if i in where)
    return FactorMap(
        where, reduction="sum", size=math.gcd(*sizes), can_split=apart and bytes_filled
    )


def _fills_bytes(info: OpInfo, index: int, where: Mapping[int, int]) -> bool:
    """Return whether zero points, packed along their last dimension, fill whole bytes there."""
    layer, dim = _ZERO_POINTS[index], where[index]
    if dim < len(info.shape(index)) - 1:
        return True
    bits = info.attribute(f"fc{layer}_expert_weight_bits", info.attribute("expert_weight_bits", 4))
    scales = info.operand(3 * layer)
    return scales is not None and (scales.shape[dim] or 0) * bits == 8 * (
        info.shape(index)[dim] or 0
    )


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return the mixture of the rank's experts, with recomputed routing weights.

    The operator converts logits into weights that sum to 1. It therefore receives the logarithms of
    the weights, and the result is multiplied by their sum.
    """
    if local.pieces(_EXPERTS) == 1:
        return local.clone()
    make, info = Arithmetic(local), local.info
    operands = _filled_experts(local)
    weights = _own_weights(make)
    smallest = _NO_WEIGHT.get(str(_kind(weights).element_type), 1e-30)
    weights = make.binary("Max", weights, make.scalar(smallest, weights))
    operands[1] = make.unary("Log", weights)
    if info.operand(14) is not None:
        operands[14] = local.no_value()
    taken = int_attr(min(int(info.attribute("k", 1)), local.part(_EXPERTS)))
    [mixed] = local.clone(operands, {"k": taken, "normalize_routing_weights": int_attr(0)})
    total, shape = make.reduce("ReduceSum", weights, [1]), local.local_result_shape()
    if len(shape) > 2:
        total = make.reshape(total, [*(size or 0 for size in shape[:-1]), 1])
    return [make.binary("Mul", mixed, total)]


def _filled_experts(local: LocalOp) -> dict[int, ir.Value]:
    """Return the operands of experts, by their numbers, with padding filled with zeros.

    An expert of padding may be selected with a negligible weight, and must not return NaN.
    """
    operands = zip(local.rule.operands, local.info.operands, strict=True)
    floats = [
        index
        for index, (dims, tensor) in enumerate(operands)
        if dims[:1] == (_EXPERTS,) and tensor is not None and tensor.dtype != "uint8"
    ]
    fill = local.fill_padding
    return {index: fill(local.operands[index], 0, _EXPERTS, 0.0) for index in floats}


def _own_weights(make: Arithmetic) -> ir.Value:
    """Return the weight of each token for each expert of the rank; 0 if it is not selected."""
    import numpy as np

    local, logits, rows = make.local, make.local.operands[1], {"axis": int_attr(1)}
    numbers = _top_experts(make, logits)
    weights = local.onnx("Softmax", [logits], logits.type, **rows)
    if local.info.operand(14) is not None:
        weights = local.operands[14]
    kind = _kind(weights).get(_kind(numbers).shape, _kind(weights).element_type)
    taken = local.onnx("GatherElements", [weights, numbers], kind, **rows)
    if local.info.attribute("normalize_routing_weights", 0):
        taken = make.binary("Div", taken, make.reduce("ReduceSum", taken, [1]))
    nothing = local.onnx("Sub", [weights, weights], weights.type)
    every = local.onnx("ScatterElements", [nothing, numbers, taken], weights.type, **rows)
    part, pieces = local.part(_EXPERTS), local.pieces(_EXPERTS)
    if local.is_padded(_EXPERTS):  # experts of padding have the weight of another column, 0
        every = make.pad(every, 1, (0, 1), 0.0)
    experts = np.minimum(np.arange(part * pieces), _experts(local)).reshape(pieces, part)
    mine = local.axis_constant(experts, local.axes(_EXPERTS))
    result = tensor_type([_rows(every), part], _kind(every).element_type)
    return local.onnx("Gather", [every, mine], result, **rows)


def _experts(local: LocalOp) -> int:
    return count(local.info.shape(2)[:1])


def _top_experts(make: Arithmetic, logits: ir.Value) -> ir.Value:
    """Return the indices of the experts with the largest logits of each token.

    Among equal logits the runtime selects the last, TopK the first, so the columns are reversed.
    """
    import numpy as np

    local, last, rows = make.local, _experts(make.local) - 1, {"axis": int_attr(1)}
    order = local.constant(np.arange(last, -1, -1))
    backwards = local.onnx("Gather", [logits, order], logits.type, **rows)
    k = local.constant(np.array([local.info.attribute("k", 1)], np.int64))
    shape = [_rows(logits), int(local.info.attribute("k", 1))]
    numbers = tensor_type(shape, ir.IntegerType.get_signless(64))
    found = ir.Operation.create(
        "onnx.TopK",
        results=[tensor_type(shape, _kind(logits).element_type), numbers],
        operands=[backwards, k],
        attributes=rows,
        loc=local.op.location,
    )
    return make.binary("Sub", local.constant(np.array(last)), found.results[1])


def _kind(value: ir.Value) -> ir.RankedTensorType:
    return ir.RankedTensorType(value.type)


def _rows(value: ir.Value) -> int | None:
    kind = _kind(value)
    return None if kind.is_dynamic_dim(0) else int(kind.get_dim_size(0))
