"""Operators that keep the row-major order: Reshape, Flatten, Squeeze, Unsqueeze.

A reshape partitions both shapes into the shortest blocks of equal size that line up. Within a
block, the major dimensions of both sides can be split into any number of pieces that divides both,
because every piece is then one contiguous run of the block's elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.layout.sizes import Open
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.blocks import Fold, Packed, Place, packing
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.sizes import has_local_sizes, local_sizes
from tensoropt.dialects.build import ints_attr, shape_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import SQUEEZE_OPERANDS_SINCE

__all__ = ["Block", "reshape_blocks"]


@dataclass(frozen=True)
class Block:
    """Ranges of dimensions of both shapes with the same elements in the same order."""

    source: range
    result: range


def reshape_blocks(source: Shape, result: Shape, copied: Sequence[int] = ()) -> list[Block]:
    """Return the blocks of a reshape from ``source`` to ``result``, in order.

    Static dimensions and ``copied`` dimensions, symbolic but equal on both sides, line up from the
    front. Static dimensions then line up from the back. The remaining middle is one block.
    """
    front = _line_up(source, result, copied)
    start = front[-1] if front else Block(range(0), range(0))
    rest_source, rest_result = source[start.source.stop :], result[start.result.stop :]
    back = _line_up(rest_source[::-1], rest_result[::-1], ())
    mirrored = [_mirror(block, len(source), len(result)) for block in reversed(back)]
    stops = (mirrored[0].source.start, mirrored[0].result.start) if mirrored else None
    stop_source, stop_result = stops or (len(source), len(result))
    middle = Block(range(start.source.stop, stop_source), range(start.result.stop, stop_result))
    return [*front, *([middle] if middle.source or middle.result else []), *mirrored]


def _mirror(block: Block, source: int, result: int) -> Block:
    return Block(
        range(source - block.source.stop, source - block.source.start),
        range(result - block.result.stop, result - block.result.start),
    )


def _line_up(source: Shape, result: Shape, copied: Sequence[int]) -> list[Block]:
    """Return the blocks that line up from the front, up to a symbolic dimension."""
    blocks: list[Block] = []
    block = _next_block(source, result, 0, 0, copied)
    while block is not None:
        blocks.append(block)
        block = _next_block(source, result, block.source.stop, block.result.stop, copied)
    return blocks


def _next_block(
    source: Shape, result: Shape, i: int, j: int, copied: Sequence[int]
) -> Block | None:
    if i == j and i in copied:
        return Block(range(i, i + 1), range(i, i + 1))
    first_i, first_j, product, wanted = i, j, 1, 1
    while True:
        take_source = product < wanted or (product == wanted and i < len(source))
        side, at = (source, i) if take_source else (result, j)
        size = side[at] if at < len(side) else None
        if size is None:
            return None
        if take_source:
            product, i = product * size, i + 1
        else:
            wanted, j = wanted * size, j + 1
        if product == wanted:
            return Block(range(first_i, i), range(first_j, j))


def _loops(info: OpInfo) -> list[FactorMap]:
    """Return the factors of the blocks; an empty operand has none."""
    if 0 in info.shape(0):
        return []
    found = (_block_loop(info, block) for block in _blocks(info))
    return [factor for factor in found if factor is not None]


def _blocks(info: OpInfo) -> list[Block]:
    """Return the blocks of an op; dimensions of an open size that it keeps are blocks."""
    source, result = info.shape(0), info.result_shape()
    pairs = enumerate(zip(info.sizes(0), info.result_sizes(), strict=False))
    same = {dim for dim, (a, b) in pairs if isinstance(a, Open) and a.can_split and a == b}
    entries = info.literal_ints(1) if info.name == "Reshape" else None
    if entries is not None and not info.attribute("allowzero", 0):
        # An entry of 0 copies the dimension in the same place of the operand.
        same |= {dim for dim, n in enumerate(entries) if n == 0 and source[dim] is None}
    return reshape_blocks(source, result, sorted(same))


def _block_loop(info: OpInfo, block: Block) -> FactorMap | None:
    source, result = info.shape(0), info.result_shape()
    here, there = _major(source, block.source), _major(result, block.result)
    if here is None or there is None:
        return None
    sizes = (source[here], result[there])
    if sizes == (None, None):
        return FactorMap({0: here}, {0: there})
    if _is_one(source, block.source) and _is_one(result, block.result):
        return FactorMap({0: here}, {0: there}, padded=True)
    common = math.gcd(*(1 if size is None else size for size in sizes))
    return FactorMap({0: here}, {0: there}, size=common)


def _is_one(shape: Shape, dims: range) -> bool:
    """Return whether all of ``dims`` except one have size 1, so that nothing is merged."""
    return sum(shape[dim] != 1 for dim in dims) == 1


def _major(shape: Shape, dims: range) -> int | None:
    """Return the first of ``dims`` with a size other than 1."""
    return next((dim for dim in dims if shape[dim] != 1), None)


@sharding_rule("Flatten")
def _flatten(info: OpInfo) -> Rule:
    return rule_of(info, _loops(info), linear=linear_in(info, (0,)))


@sharding_rule("Unsqueeze")
def _unsqueeze(info: OpInfo) -> Rule:
    return rule_of(info, _kept_loops(info), linear=linear_in(info, (0,)))


def _kept_loops(info: OpInfo) -> list[FactorMap]:
    """Return a factor per dimension that Squeeze or Unsqueeze keeps."""
    axes = info.attribute("axes")
    axes = info.literal_ints(1) if axes is None and info.operand(1) is not None else axes
    if axes is None:
        return _loops(info)
    longer = max(len(info.shape(0)), len(info.result_shape()))
    ones = {axis % longer for axis in axes}
    kept = list(enumerate(dim for dim in range(longer) if dim not in ones))
    if info.name == "Squeeze":
        return [FactorMap({0: long}, {0: short}) for short, long in kept]
    return [FactorMap({0: short}, {0: long}) for short, long in kept]


@sharding_rule("Squeeze")
def _squeeze(info: OpInfo) -> Rule | None:
    """Split the dimensions that stay.

    Without axes, all dimensions of size 1 are removed, which a split must not add to. Empty or
    unknown axes are treated the same.
    """
    if _names_axes(info):
        return rule_of(info, _kept_loops(info), linear=linear_in(info, (0,)))
    if None in info.shape(0):
        return None
    linear = linear_in(info, (0,))
    return rule_of(info, _loops(info), linear=linear, localize=_squeeze_locally)


def _names_axes(info: OpInfo) -> bool:
    """Return whether the axes name at least one dimension."""
    axes = info.literal_ints(1) if info.operand(1) is not None else info.attribute("axes")
    if axes is not None:
        return len(axes) > 0
    dropped = len(info.shape(0)) - len(info.result_shape())
    return info.operand(1) is not None and dropped < sum(n in (1, None) for n in info.shape(0))


def _squeeze_locally(local: LocalOp) -> list[ir.Value]:
    """Return the squeezed part; name its axes or sizes if a split adds dimensions of size 1.

    From opset 13 on this is a Reshape: a Squeeze with axes fails to load if ONNX Runtime infers
    another size for one of them, as it does after pools with ``ceil_mode``.
    """
    shape, local_shape = local.info.shape(0), shape_of(local.operands[0])
    axes = [dim for dim, size in enumerate(shape) if size == 1]
    if axes == [dim for dim, size in enumerate(local_shape) if size == 1]:
        return local.clone()
    if local.info.version < SQUEEZE_OPERANDS_SINCE:
        return local.clone(attributes={"axes": ints_attr(axes)})
    left = [size or 0 for dim, size in enumerate(local_shape) if shape[dim] != 1]
    return [Arithmetic(local).reshape(local.operands[0], left)]


@sharding_rule("Reshape")
def _reshape(info: OpInfo) -> Rule | None:
    """Split the major dimension of each block; known sizes are replaced by local sizes.

    A symbolic dimension keeps its own entry, divided if it is split. An entry of 0 copies a
    dimension of the operand, unless the op allows empty results, so that dimension must not be
    split if the entries are unknown.
    """
    if info.version < 5 or not has_local_sizes(info, 1):
        return None  # the shape is an attribute before opset 5
    factors = _loops(info)
    if info.literal(1) is None and not info.attribute("allowzero", 0):
        factors = [factor for factor in factors if not _may_be_copied(info, factor)]
    linear = linear_in(info, (0,))
    return rule_of(info, factors, linear=linear, localize=_reshape_locally)


@packing("Reshape")
def _folds(info: OpInfo) -> Packed | None:
    """Relate a dimension to the first two that it is cut into: `(3 h)` to `3 h`, or back.

    The second may be merged with others: `b (h d)` to `(b h) d`.
    """
    source, result = info.shape(0), info.result_shape()
    if 0 in source:
        return None
    found = []
    for block in _blocks(info):
        here = [((0, dim), source[dim] or 0) for dim in _wide(source, block.source)]
        there = [
            ((len(info.operands), dim), result[dim] or 0) for dim in _wide(result, block.result)
        ]
        fold = _fold(here, there) or _fold(there, here)
        if fold is not None:
            found.append(fold)
    return Packed(folds=tuple(found)) if found else None


def _fold(few: list[tuple[Place, int]], many: list[tuple[Place, int]]) -> Fold | None:
    """Return how the first dimension of ``few`` merges the first two of ``many``, if it does."""
    if not few or len(many) < 2 or any(size == 0 for _, size in (*few, *many)):
        return None
    (whole, size), (outer, count), (inner, points) = few[0], many[0], many[1]
    rest = size // count
    both = min(rest, points)
    if size % count or both < 2 or math.gcd(rest, points) != both:
        return None
    return Fold(whole, outer, inner, both)


def _wide(shape: Shape, dims: range) -> list[int]:
    """Return the dimensions with a size other than 1."""
    return [dim for dim in dims if shape[dim] != 1]


def _may_be_copied(info: OpInfo, factor: FactorMap) -> bool:
    """Return whether a result dimension outside the factor may copy a dimension inside it."""
    dim, result = factor.operands[0], info.result_shape()
    return dim < len(result) and result[dim] is None and factor.results[0] != dim


def _reshape_locally(local: LocalOp) -> list[ir.Value]:
    if not any(local.pieces(factor) > 1 for factor in range(len(local.rule.factors))):
        return local.clone()
    sizes = local_sizes(local, 1, local.local_result_shape(), local.result_pieces())
    return local.clone({1: sizes})
