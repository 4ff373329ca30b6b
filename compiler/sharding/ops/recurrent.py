"""Recurrent networks: sequences of a batch are independent, all else is whole."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import present_factor, rule_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, window_loop

__all__ = ["recurrent"]


@sharding_rule("LSTM", "GRU", "RNN")
def recurrent(info: OpInfo) -> Rule:
    """Return the batch.

    A hidden unit cannot be split: every step multiplies all of the state of the step before, so
    ranks would exchange it between steps, inside the operator. Nor can the two directions, as all
    ranks run one program, which reads forwards or backwards.
    """
    state, result = (0, 0) if info.attribute("layout", 0) else (1, 2)
    x = 0 if info.attribute("layout", 0) else 1
    batch = present_factor(info, {0: x, 4: 0, 5: state, 6: state}, {0: result, 1: state, 2: state})
    steps, (directions, gates, features) = info.sizes(0)[1 - x], info.shape(1)
    hidden = count(info.shape(2)[2:])
    rest = [steps, directions, gates, (features or 1) + hidden]
    return rule_of(info, [batch, window_loop(rest)], flops_per_point=2.0)
