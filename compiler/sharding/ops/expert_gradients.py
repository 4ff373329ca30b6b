"""`tensoropt.MoEGradient`: the gradients of a mixture of experts.

A rank expands it into operators of the standard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from tensoropt.compiler.layout.rule import InnerStep, Joint, Rule
from tensoropt.compiler.sharding.ops.experts import (
    ROUTE_BYTES,
    ROUTING_NODES,
    SENDING_NODES,
    can_route,
    chosen_share,
    feature_factor,
)
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.expert_products import differentiate
from tensoropt.compiler.sharding.rule.factors import FactorMap, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.routing import (
    EXPERTS,
    FEATURES,
    TOKENS,
    Routes,
    find_odds,
    find_routes,
    flat,
)
from tensoropt.compiler.sharding.rule.token_exchange import Exchange
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.build import int_attr, shape_of
from tensoropt.dialects.mlir import ir

__all__ = ["mixture_gradient"]

_WIDENING, _NARROWING = (2, 3), (4,)
_LAYERS, _DY = (2, 3, 4, 5), 6

# Copies of the rows of pairs of token and expert, and passes over the features of these rows.
_ROW_COPIES, _FEATURE_PASSES = 9, 9

# Rows of pairs, and of their features, in memory at once.
_ROWS, _FEATURE_ROWS = 6, 5


@sharding_rule("tensoropt.MoEGradient")
def mixture_gradient(info: OpInfo) -> Rule:
    """Split tokens, experts, both together, and features, as the mixture does.

    Gradients of weights are sums over tokens. The gradients of tokens and scores are sums over
    experts and features. If tokens and experts are split together, tokens travel to the ranks of
    their experts with the gradients of their results, and the gradients of the tokens travel back.
    """
    layers = dict.fromkeys((i for i in _LAYERS if info.operand(i) is not None), 0)
    rows, wide = info.shape(0)[0], feature_factor(info, _WIDENING, _NARROWING)
    factors = [
        present_factor(
            info,
            {0: 0, 1: 0, _DY: 0},
            {0: 0, 1: 0},
            size=rows if len(info.shape(0)) == 3 else None,
            reduction="sum",
        ),
        FactorMap(
            layers,
            _results(info, layers),
            reduction="sum",
            can_split=can_route(info),
            counted=True,
            padded=True,
        ),
        replace(wide, results=_results(info, wide.operands)),
        window_loop([_work(info) // (wide.size or 1)]),
    ]
    return rule_of(
        info,
        factors,
        joint=(Joint((TOKENS, EXPERTS)),),
        localize=_localize,
        flops_per_point=2.0 * chosen_share(info),
        inner=tuple(_steps(info)),
    )


def _layers(info: OpInfo) -> list[int]:
    """Return the operands among weights and biases that have a gradient: frozen ones have none."""
    return [*info.attribute("layers", ())]


def _results(info: OpInfo, places: Mapping[int, int]) -> dict[int, int]:
    """Return the dimensions of the gradients of the operands with dimensions ``places``."""
    numbers = {index: 2 + number for number, index in enumerate(_layers(info))}
    return {numbers[index]: dim for index, dim in places.items() if index in numbers}


def _work(info: OpInfo) -> int:
    """Return the products of one expert for the tokens of one first index of the input.

    The first layer is computed again; each layer has the gradients of its input and its weight.
    """
    widened, narrow = count(info.shape(2)[1:2]), count(info.shape(4)[2:])
    up, down = (index in _layers(info) for index in (2, 4))
    return count(info.sizes(0)[1:]) * ((2 + up) * widened + (1 + down) * narrow)


def _steps(info: OpInfo) -> Iterator[InnerStep]:
    """Yield the copies of rows, features and weights, and of the rows that are sent."""
    tensor, experts = info.operand(0), count(info.shape(2)[:1])
    assert tensor is not None
    tokens, chosen = count(tensor.sizes[:-1]), int(info.attribute("k", 1))
    first, bytes_ = count(tensor.sizes[:1]), tensor.elements * tensor.item_bytes
    row, each = bytes_ // first, chosen * bytes_ // first // experts
    item, width = tensor.item_bytes, count(tensor.sizes[-1:])
    # A first layer with gates has two elements per feature.
    doubled = count(info.shape(2)[1:2]) // count(info.shape(4)[2:])
    feature = chosen * item * (tokens // first) * (doubled + 1) / experts
    weight = width * item * (doubled + 1)
    routes = chosen * ROUTE_BYTES * tokens // first
    both, own, inner = (TOKENS, EXPERTS), (TOKENS,), (TOKENS, EXPERTS, FEATURES)
    yield InnerStep((), own, routes, "copy", times=ROUTING_NODES)
    yield InnerStep((), both, each, "copy", times=_ROW_COPIES)
    yield InnerStep((), inner, round(_FEATURE_PASSES * feature), "copy")
    yield InnerStep((), (EXPERTS, FEATURES), weight, "copy", times=2)
    yield InnerStep((), both, _ROWS * each, "memory")
    yield InnerStep((), inner, round(_FEATURE_ROWS * feature), "memory")
    yield InnerStep((), (EXPERTS, FEATURES), 2 * weight, "memory")
    yield InnerStep(both, own, routes, "copy", joint=True, times=SENDING_NODES)
    yield InnerStep(both, own, routes, "all_gather", joint=True)
    there, back = 2 * row, row + chosen * item * tokens // first
    for size in (there, back):
        yield InnerStep(both, own, size, "copy", joint=True, choices=chosen, times=2)
        yield InnerStep(both, own, size, "all_to_all_rows", joint=True, choices=chosen)
    yield InnerStep(both, own, back, "copy", joint=True, choices=experts, times=2)


def _localize(local: LocalOp) -> list[ir.Value]:
    make = Arithmetic(local)
    odds = find_odds(make)
    routes = find_routes(make, odds)
    tokens, width = shape_of(routes.experts)[0], shape_of(local.operands[0])[-1] or 0
    x, dy = (flat(make, local.operands[index], [tokens, width]) for index in (0, _DY))
    if local.strategy.joint_axes:
        exchange = Exchange(make, routes)
        come = exchange.send(make.concat([x, dy], 1))
        x, dy = (make.slice(come, 1, start, start + width) for start in (0, width))
        found = differentiate(make, x, dy, exchange.received)
        back = exchange.returned(make.concat([found.tokens, found.choices], 1))
        ends = 0, width, shape_of(back)[1] or width
        dx, choices = (make.slice(back, 1, *own) for own in pairwise(ends))
    else:
        found = differentiate(make, x, dy, routes)
        dx, choices = found.tokens, found.choices
    dx = flat(make, dx, local.local_result_shape())
    layers = dict(zip(_LAYERS, found.layers, strict=True))
    wanted = [own for index in _layers(local.info) if (own := layers[index]) is not None]
    return [dx, _score_gradient(make, odds, routes, choices), *wanted]


def _score_gradient(
    make: Arithmetic, odds: ir.Value, routes: Routes, choices: ir.Value
) -> ir.Value:
    """Return the gradient of the scores, by the gradients of the weights of each token's choices.

    The selection is constant. Normalised weights are the softmax of the selected scores alone.
    """
    scores, weights = make.local.operands[1], routes.weights
    terms = make.mul(weights, choices)
    total = make.reduce("ReduceSum", terms, [1])
    normal = bool(make.local.info.attribute("normalize_routing_weights", 0))
    own = make.sub(terms, make.mul(weights, total)) if normal else terms
    places = [make.zeros(scores), routes.experts, own]
    found = make.onnx("ScatterElements", places, scores.type, axis=int_attr(1))
    return found if normal else make.sub(found, make.mul(odds, total))
