"""Mixtures of experts: tokens, experts, and the inner features of experts can be split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.layout.rule import InnerStep, Joint, Rule
from tensoropt.compiler.sharding.ops.quantization import divides_often, smaller_blocks
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.routing import (
    EXPERTS,
    FEATURES,
    TOKENS,
    Routes,
    add_up,
    find_odds,
    find_ones,
    find_routes,
    flat,
    number_ones,
    select_part,
)
from tensoropt.compiler.sharding.rule.token_exchange import Exchange
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.build import element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = [
    "ROUTE_BYTES",
    "ROUTING_NODES",
    "SENDING_NODES",
    "can_route",
    "chosen_share",
    "feature_factor",
    "mixture",
    "quantized_mixture",
]

# First opset with a Max of integers; TopK sorts and CumSum exists since 11.
_ROUTING_VERSION = 12

# Small nodes that find the rows of a rank's experts, and the rows to send and to receive.
ROUTING_NODES, SENDING_NODES = 25, 45

# Experts and their weights are sent as float32, in which their numbers are exact.
ROUTE_BYTES = 8

# A logit far below any other, in half precision too.
_NEVER = -1e4

# Layer of each operand of packed zero points; its scales are operand 3 * layer.
_ZERO_POINTS = {11: 1, 12: 2, 13: 3}

# Scales of the narrowing layer, with blocks along the features, and scales of the widening layers.
_NARROWING, _WIDENING = 6, (3, 9)

_LEAST_BLOCK = 16
"""The smallest block that ONNX Runtime takes."""


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
    """Split tokens, experts, both together, and the features between an expert's layers.

    A rank with some of the experts computes the routing over all experts, runs its own on the
    tokens that select them, and mixes the results; the sum over the ranks is the whole result. If
    an axis splits tokens and experts together, each rank sends its tokens to the ranks of their
    experts, and adds the results that they return. The last layer sums over features, so its bias
    is partial if they are split.
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
    rank, features = len(info.shape(0)), feature_factor(info, places.widening, places.narrowing)
    layers = (*places.widening, *places.narrowing, places.last_bias)
    mine = {index: 0 for index in layers if info.operand(index) is not None}
    factors = [
        present_factor(
            info, {0: 0, 1: 0, 14: 0}, {0: 0}, size=info.shape(0)[0] if rank == 3 else None
        ),
        FactorMap(
            mine,
            reduction="sum",
            can_split=can_route(info),
            counted=True,
            padded=True,
            fills=True,
        ),
        features,
        window_loop([_work(info, places) // (features.size or 1)]),
    ]
    bias = (places.last_bias,) if info.operand(places.last_bias) is not None else ()
    return rule_of(
        info,
        factors,
        joint=(Joint((TOKENS, EXPERTS)),),
        additive=bias,
        localize=_localize,
        flops_per_point=2.0 * chosen_share(info),
        inner=_steps(info),
    )


def chosen_share(info: OpInfo) -> float:
    """Return the share of all experts that a token chooses."""
    return min(1.0, int(info.attribute("k", 1)) / count(info.shape(2)[:1]))


def _steps(info: OpInfo) -> tuple[InnerStep, ...]:
    """Return the copies of tokens for the rank's experts, and of the results for each token.

    Results are copied to the row of zeros, to the places of each token, and into their sum. If
    tokens are sent, their routes are gathered before. The rows that are sent are copied, and the
    returned rows as the results are, one row from each rank.
    """
    tensor, experts = info.operand(0), count(info.shape(2)[:1])
    assert tensor is not None
    tokens, chosen = count(tensor.sizes[:-1]), int(info.attribute("k", 1))
    first, bytes_ = count(tensor.sizes[:1]), tensor.elements * tensor.item_bytes
    row, each = bytes_ // first, chosen * bytes_ // first
    routes = chosen * ROUTE_BYTES * tokens // first
    both, own = (TOKENS, EXPERTS), (TOKENS,)
    return (
        InnerStep((EXPERTS,), own, routes, "copy", choices=chosen, times=ROUTING_NODES),
        InnerStep((EXPERTS,), both, each // experts, "copy", times=2),
        InnerStep((EXPERTS,), own, each, "copy", choices=chosen, times=2),
        InnerStep(both, own, routes, "copy", joint=True, times=SENDING_NODES),
        InnerStep(both, own, routes, "all_gather", joint=True),
        InnerStep(both, own, row, "copy", joint=True, choices=chosen, times=2),
        InnerStep(both, own, row, "all_to_all_rows", joint=True, choices=chosen, times=2),
        InnerStep(both, own, row, "copy", joint=True, choices=experts, times=2),
    )


def can_route(info: OpInfo) -> bool:
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


def feature_factor(info: OpInfo, widening: Sequence[int], narrowing: Sequence[int]) -> FactorMap:
    """Return the factor over the features between the layers, in dimensions 1 and 2.

    It stays whole if two kinds of features are stored as two consecutive blocks. Parts may end
    inside of a block of quantized weights if few numbers of ranks divide the blocks. Each rank then
    has all scales of the narrowing layer.
    """
    dims = dict.fromkeys(widening, 1) | dict.fromkeys(narrowing, 2)
    ranks = {i: tensor.rank for i in dims if (tensor := info.operand(i)) is not None}
    where = {i: dims[i] for i, rank in ranks.items() if dims[i] < rank}
    sizes = [count([info.sizes(i)[dim]]) for i, dim in where.items()]
    apart = info.attribute("swiglu_fusion", 0) != 2
    if _cuts_blocks(info):
        del where[_NARROWING]
        size = count([info.sizes(_NARROWING)[2]]) * _block_size(info) // _LEAST_BLOCK
        return FactorMap(where, reduction="sum", size=size, can_split=apart)
    bytes_filled = all(_fills_bytes(info, i, where) for i in _ZERO_POINTS if i in where)
    return FactorMap(
        where, reduction="sum", size=math.gcd(*sizes), can_split=apart and bytes_filled
    )


def _cuts_blocks(info: OpInfo) -> bool:
    """Return whether parts may end inside of a block along the features.

    All blocks then become smaller ones. Packed zero points cannot be repeated for these.
    """
    if info.name != "com.microsoft.QMoE" or len(info.shape(_NARROWING)) < 3:
        return False
    packed, count_of = info.shape(5)[2], info.shape(_NARROWING)[2]
    if packed is None or count_of is None or divides_often(count_of):
        return False
    complete = packed * 8 == count_of * _block_size(info) * _bits(info, 2)
    return complete and all(info.operand(index) is None for index in _ZERO_POINTS)


def _block_size(info: OpInfo) -> int:
    return int(info.attribute("block_size", 0))


def _bits(info: OpInfo, layer: int) -> int:
    name = f"fc{layer}_expert_weight_bits"
    return int(info.attribute(name, info.attribute("expert_weight_bits", 4)))


def _fills_bytes(info: OpInfo, index: int, where: Mapping[int, int]) -> bool:
    """Return whether zero points, packed along their last dimension, fill whole bytes there."""
    layer, dim = _ZERO_POINTS[index], where[index]
    if dim < len(info.shape(index)) - 1:
        return True
    scales = info.operand(3 * layer)
    packed_bits = 8 * (info.shape(index)[dim] or 0)
    return scales is not None and (scales.shape[dim] or 0) * _bits(info, layer) == packed_bits


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return the mixture of the rank's experts, of its tokens or of those that it receives."""
    blocks = _divide_blocks(local)
    if local.pieces(EXPERTS) == 1:
        return local.clone(attributes=blocks)
    make = Arithmetic(local)
    routes = find_routes(make, find_odds(make))
    rows = flat(make, local.operands[0], [shape_of(routes.experts)[0], _width(local)])
    if local.strategy.joint_axes:
        exchange = Exchange(make, routes)
        mixed = _mix(make, exchange.send(rows), exchange.received, blocks)
        summed = exchange.returned(mixed)
    else:
        summed = _mix(make, rows, routes, blocks)
    return [flat(make, summed, local.local_result_shape())]


def _width(local: LocalOp) -> int:
    return shape_of(local.operands[0])[-1] or 0


def _mix(
    make: Arithmetic, rows: ir.Value, routes: Routes, blocks: Mapping[str, ir.Attribute]
) -> ir.Value:
    """Return the sum of the weighted results of the rank's experts for each of the tokens ``rows``.

    The operator runs on a row for each token and each of its selected experts that the rank has.
    Each row selects one expert. The results of a token are multiplied by its weights and added.
    """
    local, width = make.local, _width(make.local)
    pairs = _Pairs(make, routes.experts)
    operands = {0: make.take(rows, pairs.tokens, 0), 1: pairs.logits(routes.weights)}
    if local.info.operand(14) is not None:
        operands[14] = local.no_value()
    attributes = {"k": int_attr(1), "normalize_routing_weights": int_attr(0), **blocks}
    made = tensor_type([None, width], element_type(rows))
    [mixed] = local.clone(operands, attributes, [made])
    places = flat(make, pairs.places, shape_of(routes.experts))
    return add_up(make, mixed, places, make.unsqueeze(routes.weights, [1]))


def _divide_blocks(local: LocalOp) -> dict[str, ir.Attribute]:
    """Give each smaller block a scale, and return the size of these blocks as an attribute.

    Do nothing unless parts may end inside of a block.
    """
    import numpy as np

    info, pieces = local.info, local.pieces(FEATURES)
    if pieces == 1 or not _cuts_blocks(info):
        return {}
    make, whole = Arithmetic(local), _block_size(info)
    part = local.part(FEATURES) * _LEAST_BLOCK
    blocks, size = smaller_blocks(local, FEATURES, part, whole)
    local.operands[_NARROWING] = make.take(local.operands[_NARROWING], blocks, 2)
    for index in _WIDENING:
        if info.operand(index) is not None and size < whole:
            own = np.repeat(np.arange(shape_of(local.operands[index])[2] or 0), whole // size)
            local.operands[index] = make.take(local.operands[index], make.ints(own.tolist()), 2)
    return {"block_size": int_attr(size)}


class _Pairs:
    """The tokens and their selected experts that the rank has, one pair per row.

    If there is none, one row stands for it, because kernels may need a row.
    """

    def __init__(self, make: Arithmetic, numbers: ir.Value) -> None:
        """Find the pairs among ``numbers``, the selected experts of each token."""
        import numpy as np

        local = make.local
        self.make, self.part = make, local.part(EXPERTS)
        parts = np.arange(local.pieces(EXPERTS))
        part, first = (
            local.axis_constant(own, local.axes(EXPERTS)) for own in (parts, parts * self.part)
        )
        every = flat(make, numbers, [None])
        self.own = make.sub(every, first)
        mine = select_part(make, every, part)
        self.places, rows = number_ones(make, mine)
        """The row of each expert of each token, the number of rows for experts of other ranks."""
        some = make.onnx(
            "Concat", [find_ones(make, mine), make.ints([0])], self.own.type, axis=int_attr(0)
        )
        bounds = [make.ints([0]), rows, make.ints([0])]
        self.kept = make.onnx("Slice", [some, *bounds], tensor_type([None], element_type(some)))
        selected = shape_of(numbers)[1] or 1
        self.tokens = make.div(self.kept, make.scalar(selected, self.kept))
        """The token of each row."""

    def logits(self, like: ir.Value) -> ir.Value:
        """Return logits of the rank's experts, by which each row selects its own with weight 1."""
        make = self.make
        wanted = make.unsqueeze(make.take(self.own, self.kept, 0), [1])
        same = make.compare("Equal", wanted, make.ints(range(self.part)))
        return make.where(same, make.scalar(0.0, like), make.scalar(_NEVER, like))
