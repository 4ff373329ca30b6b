"""Linear attention of the runtime, with the convolution before it and the normalisation after it.

Their states replace a KV cache: each sequence and each head or channel has a state of its own.
"""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.ops.layer_normalization import NORMALIZATION_FLOPS
from tensoropt.compiler.sharding.rule.factors import FactorMap, present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.mlir import ir

__all__ = ["attention", "convolution", "gated_norm"]

# Index of the factor over heads.
_HEADS = 1

# For each element of a state: decay, the product with the key, the update, and the product with
# the query.
_FLOPS = 7.0


@sharding_rule("LinearAttention", "com.microsoft.LinearAttention")
def attention(info: OpInfo) -> Rule | None:
    """Split batch and heads, also in the state; each token needs the state of the one before it.

    ``None`` for states of several tokens: no CPU kernel keeps them, so the rule cannot be proved.
    """
    if info.attribute("state_window", 0):
        return None
    heads = [int(info.attribute(name)) for name in ("q_num_heads", "kv_num_heads")]
    packed = [index for index in (0, 1, 2, 4, 5) if info.operand(index) is not None]
    shared = math.gcd(*heads)
    own = {index: 2 for index in packed if info.shape(index)[2] != 1}
    known = all(info.shape(index)[2] is not None for index in packed)
    tokens, sizes = info.sizes(0)[1], info.result_sizes(1)[-2:]
    return rule_of(
        info,
        [
            present_factor(info, {**dict.fromkeys(packed, 0), 3: 0}, {0: 0, 1: 0}),
            present_factor(info, {**own, 3: 1}, {0: 2, 1: 1}, size=shared, can_split=known),
            window_loop([tokens, max(heads) // shared, *sizes]),
        ],
        localize=_divide_heads,
        flops_per_point=_FLOPS,
    )


def _divide_heads(local: LocalOp) -> list[ir.Value]:
    return local.clone(attributes=local.divide_attributes(_HEADS, "q_num_heads", "kv_num_heads"))


@sharding_rule("CausalConvWithState", "com.microsoft.CausalConvWithState")
def convolution(info: OpInfo) -> Rule | None:
    """Split batch and channels, also in the state; a step needs the steps before it.

    Channels stay whole if they are several last dimensions. ``None`` for states of several steps,
    as for the attention.
    """
    if info.attribute("state_window", 0):
        return None
    last = bool(info.attribute("channels_last", 0))
    channel, sizes = 2 if last else 1, info.sizes(0)
    batch = present_factor(info, {0: 0, 3: 0}, {0: 0, 1: 0})
    channels = present_factor(info, {0: channel, 1: 0, 2: 0, 3: channel}, {0: channel, 1: channel})
    if last and len(sizes) > 3:
        channels = window_loop(sizes[2:])
    steps = window_loop([*(sizes[1:2] if last else sizes[2:]), *info.shape(1)[2:]])
    return rule_of(info, [batch, channels, steps], flops_per_point=2.0)


@sharding_rule("com.microsoft.GatedRMSNorm")
def gated_norm(info: OpInfo) -> Rule:
    """Split rows, and the heads along the last dimension, which have one scale."""
    rank, size = len(info.shape(0)), info.shape(1)[0]
    last = info.shape(0)[-1]
    heads = last // size if last and size else 1
    factors = [FactorMap({0: dim, 2: dim}, {0: dim}) for dim in range(rank - 1)]
    factors.append(FactorMap({0: rank - 1, 2: rank - 1}, {0: rank - 1}, size=heads))
    flops = NORMALIZATION_FLOPS + 12.0
    return rule_of(info, [*factors, window_loop([size])], flops_per_point=flops)
