"""`tensoropt.Barrier`: its first operand, once the second is there."""

from __future__ import annotations

from tensoropt.compiler.sharding.loops import Loop, linear_in, rule_of
from tensoropt.compiler.sharding.op_info import OpInfo
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import Rule

__all__: list[str] = []


@sharding_rule("tensoropt.Barrier")
def _barrier(info: OpInfo) -> Rule:
    """Split any dimension; the second operand along, where it has an equal one.

    What it waits for is most often a gradient that is laid out like it. Nothing reads its elements,
    so that each rank may as well wait for a part of its own: split alone, it leaves the rest whole.
    """
    x, after = info.shape(0), info.shape(1)
    both = [dim for dim, pair in enumerate(zip(x, after, strict=False)) if pair[0] == pair[1]]
    loops = [Loop({0: dim, 1: dim} if dim in both else {0: dim}, {0: dim}) for dim in range(len(x))]
    loops += [Loop({1: dim}) for dim in range(len(after)) if dim not in both]
    return rule_of(info, loops, linear=linear_in(info, (0,)))
