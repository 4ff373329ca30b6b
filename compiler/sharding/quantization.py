"""QuantizeLinear and DequantizeLinear: elementwise, with a scale per tensor, channel or block."""

from __future__ import annotations

from tensoropt.compiler.sharding.loops import Loop, axis_of, rule_of
from tensoropt.compiler.sharding.op_info import OpInfo
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import Rule

__all__: list[str] = []


@sharding_rule("QuantizeLinear", "DequantizeLinear")
def _quantize(info: OpInfo) -> Rule:
    """Every dimension can be split; where blocks share a scale, between blocks."""
    rank = len(info.shape(0))
    axis = axis_of(info, 1, rank) if rank else 0
    loops = [_loop(info, dim, axis) for dim in range(rank)]
    return rule_of(info, loops, flops_per_point=2.0)


def _loop(info: OpInfo, dim: int, axis: int) -> Loop:
    scale = info.shape(1)
    if info.attribute("block_size", 0):
        blocks = scale[axis] if _is_whole_blocks(info, axis) else 1
        return Loop(_places(info, dim, dim), {0: dim}, size=blocks if dim == axis else None)
    per_channel = len(scale) == 1 and scale[0] != 1 and dim == axis
    return Loop(_places(info, dim, 0) if per_channel else {0: dim}, {0: dim})


def _is_whole_blocks(info: OpInfo, axis: int) -> bool:
    blocks, size = info.shape(1)[axis], info.shape(0)[axis]
    return blocks is not None and size == blocks * int(info.attribute("block_size"))


def _places(info: OpInfo, dim: int, scale_dim: int) -> dict[int, int]:
    """Return where the loop runs: the data, the scale and, where it is there, the zero point."""
    zero_point = {} if info.operand(2) is None else {2: scale_dim}
    return {0: dim, 1: scale_dim, **zero_point}
