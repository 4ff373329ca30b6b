"""`tensoropt.Barrier`: returns its first operand once the second is available."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, rule_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule

__all__: list[str] = []


@sharding_rule("tensoropt.Barrier")
def _barrier(info: OpInfo) -> Rule:
    """Split any dimension of the first operand. The second may have any layout."""
    factors = [FactorMap({0: dim}, {0: dim}) for dim in range(len(info.shape(0)))]
    return rule_of(info, factors, linear=linear_in(info, (0,)))
