"""Matrix products: MatMul with NumPy's broadcasting, and Gemm."""

from __future__ import annotations

from tensoropt.compiler.sharding.loops import Loop, adds_up, linear_in, rule_of
from tensoropt.compiler.sharding.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import Rule

__all__ = ["gemm", "matmul"]


@sharding_rule("MatMul")
def matmul(info: OpInfo) -> Rule | None:
    """Return `b m k, b k n -> b m n`; a vector has no m (on the left) or no n (on the right)."""
    left, right = info.shape(0), info.shape(1)
    if not left or not right:
        return None
    batch = max(len(left), len(right), 2) - 2
    loops = [_batch_loop(dim, batch, (left, right)) for dim in range(batch)]
    inner = {0: len(left) - 1, 1: max(len(right) - 2, 0)}
    loops.append(Loop(inner, reduction="sum", can_split=adds_up(info)))
    if len(left) > 1:
        loops.append(Loop({0: len(left) - 2}, {0: batch}))
    if len(right) > 1:
        loops.append(Loop({1: len(right) - 1}, {0: len(info.result_shape()) - 1}))
    return rule_of(info, loops, linear=linear_in(info, (0,), (1,)), flops_per_point=2.0)


def _batch_loop(dim: int, batch: int, operands: tuple[Shape, Shape]) -> Loop:
    """Return the loop of batch dimension ``dim`` of the result; a stretched 1 is on no loop."""
    owned = {index: dim - batch + len(shape) - 2 for index, shape in enumerate(operands)}
    places = {i: own for i, own in owned.items() if own >= 0 and operands[i][own] != 1}
    return Loop(places, {0: dim})


@sharding_rule("Gemm")
def gemm(info: OpInfo) -> Rule:
    """Return `m k, k n, m n -> m n`: the bias is partial wherever the product is."""
    rows = 1 if info.attribute("transA", 0) else 0
    columns = 0 if info.attribute("transB", 0) else 1
    bias = _bias_dims(info)
    loops = [
        Loop({0: rows, **bias[0]}, {0: 0}),
        Loop({1: columns, **bias[1]}, {0: 1}),
        Loop({0: 1 - rows, 1: 1 - columns}, reduction="sum", can_split=adds_up(info)),
    ]
    together = (2,) if info.operand(2) is not None else ()
    linear = linear_in(info, (0, *together), (1, *together))
    return rule_of(info, loops, linear=linear, additive=together, flops_per_point=2.0)


def _bias_dims(info: OpInfo) -> tuple[dict[int, int], dict[int, int]]:
    """Return where the bias runs along the rows and along the columns, aligned from the right."""
    held = info.operand(2)
    shape = () if held is None else held.shape
    own = {dim: len(shape) - 2 + dim for dim in (0, 1)}
    places = [{2: d} if d >= 0 and shape[d] != 1 else {} for d in own.values()]
    return places[0], places[1]
