"""Operators that move elements: dimensions that they leave in place can be split."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.blocks import Packed, Place, Span, local_start, packing
from tensoropt.compiler.sharding.rule.factors import (
    FactorMap,
    axis_of,
    kept_factors,
    linear_in,
    rule_of,
)
from tensoropt.compiler.sharding.rule.halo import can_exchange, inner_exchange, widen
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.slicing import slice_indices
from tensoropt.compiler.sharding.rule.windows import Halo
from tensoropt.dialects.build import ints_attr, shape_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import PAD_OPERANDS_SINCE, SLICE_OPERANDS_SINCE

__all__: list[str] = []


@sharding_rule("Transpose")
def _transpose(info: OpInfo) -> Rule:
    rank = len(info.shape(0))
    order = info.attribute("perm", tuple(reversed(range(rank))))
    factors = [FactorMap({0: source}, {0: dim}) for dim, source in enumerate(order)]
    return rule_of(info, factors, linear=linear_in(info, (0,)))


@sharding_rule("Concat")
def _concat(info: OpInfo) -> Rule:
    rank, present = len(info.result_shape()), range(len(info.operands))
    axis = axis_of(info, 1, rank)
    factors = [FactorMap(dict.fromkeys(present, d), {0: d}) for d in range(rank) if d != axis]
    return rule_of(info, factors, linear=linear_in(info, tuple(present)))


@packing("Concat")
def _join_blocks(info: OpInfo) -> Packed | None:
    """Join contiguous dimensions to one in blocks."""
    axis, count = axis_of(info, 1, len(info.result_shape())), len(info.operands)
    sizes = [info.shape(index)[axis] for index in range(count)]
    return None if None in sizes else Packed(_spans((count, axis), sizes, first=0))


def _spans(whole: Place, sizes: Sequence[int | None], first: int) -> tuple[Span, ...]:
    """Return the spans of consecutive tensors from ``first`` on, of ``sizes`` along a dimension."""
    starts = itertools.accumulate((size or 0 for size in sizes[:-1]), initial=0)
    return tuple(Span(whole, (first + n, whole[1]), start) for n, start in enumerate(starts))


@sharding_rule("Split")
def _split(info: OpInfo) -> Rule:
    rank = len(info.shape(0))
    axis = axis_of(info, 0, rank)
    return _keep(info, [dim for dim in range(rank) if dim != axis])


@packing("Split")
def _part_blocks(info: OpInfo) -> Packed | None:
    """Cut a dimension in blocks into contiguous ones."""
    axis, results = axis_of(info, 0, len(info.shape(0))), range(len(info.results))
    if info.version < 2 or any(info.results[index] is None for index in results):
        return None  # the first Split has sizes of its operand's type
    sizes = [info.result_shape(index)[axis] for index in results]
    if None in sizes:
        return None
    return Packed(_spans((0, axis), sizes, first=len(info.operands)), _part_locally)


def _part_locally(local: LocalOp) -> list[ir.Value]:
    """Return the parts of a rank's part; its sizes follow from the parts of the results."""
    import numpy as np

    if local.pieces(len(local.rule.factors) - 1) == 1:
        return local.clone()
    axis, count = axis_of(local.info, 0, len(local.info.shape(0))), len(local.info.results)
    sizes = [local.local_result_shape(index)[axis] or 0 for index in range(count)]
    if local.info.operand(1) is not None:
        return local.clone({1: local.constant(np.array(sizes, np.int64))})
    if local.info.attribute("split") is not None:
        return local.clone(attributes={"split": ints_attr(sizes)})
    return local.clone()


def _keep(info: OpInfo, dims: Sequence[int], *, linear: bool = True) -> Rule:
    """Return the rule that splits ``dims``, which operand 0 and the results share."""
    groups = linear_in(info, (0,)) if linear else ()
    return rule_of(info, kept_factors(info, dims), linear=groups)


@sharding_rule("Slice")
def _slice(info: OpInfo) -> Rule | None:
    """Split dimensions that keep their size; bounds are also clamped to a shorter size.

    A dimension can also be split if the slice takes one of every ``step`` elements. A
    negative step reverses a dimension that keeps its size; ``None`` if a step may be negative.
    """
    backward, rank, sampled = _backward(info), len(info.shape(0)), _sampled_dims(info)
    if backward is None:
        return None
    dims = [dim for dim in range(rank) if dim not in backward and dim not in sampled]
    own = [FactorMap({0: dim}, {0: dim}, size=size) for dim, size in sampled.items()]
    return rule_of(info, [*kept_factors(info, dims), *own], linear=linear_in(info, (0,)))


@packing("Slice")
def _cut_blocks(info: OpInfo) -> Packed | None:
    """Take whole blocks of one dimension."""
    shape, made = info.shape(0), info.result_shape()
    changed = [dim for dim, size in enumerate(shape) if size != made[dim]]
    bounds = _bounds(info)
    if len(changed) != 1 or bounds is None or None in (shape[changed[0]], made[changed[0]]):
        return None
    (dim,) = changed
    start, end, step = bounds.get(dim, (0, 0, 0))
    taken = slice_indices(shape[dim] or 0, start, end, step) if step else range(0)
    if taken.step != 1 or len(taken) != made[dim]:
        return None
    return Packed((Span((0, dim), (len(info.operands), dim), taken.start),), _take_locally)


def _bounds(info: OpInfo) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step of each dimension that is sliced, ``None`` if not literal."""
    if info.version < SLICE_OPERANDS_SINCE:
        return None
    starts, ends = info.literal_ints(1), info.literal_ints(2)
    if starts is None or ends is None:
        return None
    axes = list(range(len(starts))) if info.operand(3) is None else info.literal_ints(3)
    steps = [1] * len(starts) if info.operand(4) is None else info.literal_ints(4)
    if axes is None or steps is None:
        return None
    rank = len(info.shape(0))
    rows = zip(axes, starts, ends, steps, strict=True)
    return {axis % rank: (start, end, step) for axis, start, end, step in rows}


def _take_locally(local: LocalOp) -> list[ir.Value]:
    """Return the slice of a rank's part, which has a piece of each block."""
    import numpy as np

    own = _cut_blocks(local.info)
    if own is None or local.pieces(len(local.rule.factors) - 1) == 1:
        return local.clone()
    (span,), dim = own.spans, own.spans[0].whole[1]
    start, size = local_start(local, span), local.local_result_shape()[dim] or 0
    bounds = _bounds(local.info) or {}
    rows = {**bounds, dim: (start, start + size, 1)}
    starts, ends, steps = (np.array(own, np.int64) for own in zip(*rows.values(), strict=True))
    given = {1: starts, 2: ends, 3: np.array([*rows], np.int64), 4: steps}
    present = {i: local.constant(own) for i, own in given.items() if i < 3 or local.info.operand(i)}
    return local.clone(present)


def _sampled_dims(info: OpInfo) -> dict[int, int]:
    """Return the dimensions that keep one of every ``step`` elements, with result sizes.

    Parts are multiples of a step, so each starts like the whole; its end is clamped.
    """
    if info.operand(4) is None or info.operand(3) is None:
        return {}
    starts, axes, steps = (info.literal_ints(index) for index in (1, 3, 4))
    if starts is None or axes is None or steps is None:
        return {}
    shape, made, rank = info.shape(0), info.result_shape(), len(info.shape(0))
    rows = zip(starts, [axis % rank for axis in axes], steps, strict=True)
    return {
        dim: made[dim] or 0
        for start, dim, step in rows
        if 0 <= start < step and step > 1 and made[dim] and shape[dim] == (made[dim] or 0) * step
    }


def _backward(info: OpInfo) -> set[int] | None:
    if info.operand(4) is None:
        return set()
    steps, rank = info.literal_ints(4), len(info.shape(0))
    if steps is None or all(step > 0 for step in steps):
        return None if steps is None else set()
    axes = list(range(len(steps))) if info.operand(3) is None else info.literal_ints(3)
    if axes is None:
        return None
    return {axis % rank for axis, step in zip(axes, steps, strict=True) if step < 0}


@sharding_rule("Pad")
def _pad(info: OpInfo) -> Rule | None:
    """Split dimensions without padding; constant padding adds up only if it is 0.

    Shifted dimensions, padded at one end by the amount cropped at the other, can also be split.
    """
    padded = _padded_dims(info) if info.version >= 2 else None
    if padded is None:
        return None
    dims = [dim for dim in range(len(info.shape(0))) if dim not in padded]
    shifts = _shifts(info)
    if not shifts:
        return _keep(info, dims, linear=_pads_nothing_constant(info))
    factors = kept_factors(info, dims, padded=True)
    for shift in shifts:
        factors.append(FactorMap({0: shift.dim}, {0: shift.dim}, least=shift.reach))
    linear = linear_in(info, (0,)) if _pads_nothing_constant(info) else ()
    inner = inner_exchange(info, factors, shifts)
    return rule_of(info, factors, linear=linear, localize=_shift, inner=inner)


@packing("Pad")
def _surround_blocks(info: OpInfo) -> Packed | None:
    """Put blocks of padding around the blocks of one dimension."""
    if info.version < PAD_OPERANDS_SINCE or info.attribute("mode", "constant") != "constant":
        return None
    axes, sides = _axes_of(info), info.literal_ints(1)
    if axes is None or sides is None or min(sides, default=0) < 0:
        return None
    padded = [n for n, both in enumerate(zip(sides, sides[len(axes) :], strict=False)) if any(both)]
    if len(padded) != 1:
        return None
    dim = axes[padded[0]]
    whole = (len(info.operands), dim)
    return Packed((Span(whole, (0, dim), sides[padded[0]]),), _surround_locally)


def _surround_locally(local: LocalOp) -> list[ir.Value]:
    """Return a rank's part, with its pieces of the blocks of padding."""
    import numpy as np

    own = _surround_blocks(local.info)
    if own is None or local.pieces(len(local.rule.factors) - 1) == 1:
        return local.clone()
    (span,), dim = own.spans, own.spans[0].part[1]
    before, made = local_start(local, span), local.local_result_shape()[dim] or 0
    after = made - before - (shape_of(local.operands[0])[dim] or 0)
    sides = np.array(local.info.literal_ints(1), np.int64).reshape(2, -1)
    sides[:, (_axes_of(local.info) or []).index(dim)] = before, after
    return local.clone({1: local.constant(sides.reshape(-1))})


def _shifts(info: OpInfo) -> list[Halo]:
    """Return the halos of the dimensions in which all elements are shifted."""
    is_plain = str(info.attribute("mode", "constant")) == "constant" and info.version >= 11
    pads, given = info.literal_ints(1) if is_plain else None, info.operand(2)
    if pads is None or info.operand(3) is not None or not can_exchange(info):
        return []
    if given is not None and info.literal(2) is None:
        return []
    both = zip(info.shape(0), pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)
    return [
        Halo(dim, begin, end)
        for dim, (size, begin, end) in enumerate(both)
        if begin + end == 0 and size is not None and 0 < abs(begin) < size
    ]


def _shift(local: LocalOp) -> list[ir.Value]:
    """Return the part shifted with edges of its neighbours, and padded in other dimensions."""
    import numpy as np

    layout, fill = local.strategy.operands[0], local.info.literal(2)
    cut = [shift for shift in _shifts(local.info) if layout.axes_splitting(shift.dim)]
    pads = np.array(local.info.literal_ints(1), np.int64).reshape(2, -1)
    for shift in cut:
        pads[:, shift.dim] = 0
    x = widen(local, cut, 0.0 if fill is None else float(fill.reshape(-1)[0]))
    if not pads.any():
        return [x]
    return local.clone({0: x, 1: local.constant(pads.reshape(-1))})


def _padded_dims(info: OpInfo) -> set[int] | None:
    """Return the dimensions that may be padded, or ``None`` if they are unknown."""
    axes = _axes_of(info)
    pads = list(info.attribute("pads", ())) if info.version < 11 else info.literal_ints(1)
    if axes is None or pads is None:
        return None if axes is None else {*axes}
    both = zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)
    return {axis for axis, begin, end in both if begin or end}


def _axes_of(info: OpInfo) -> list[int] | None:
    """Return the dimension of each pair of paddings, ``None`` if they are unknown."""
    rank = len(info.shape(0))
    axes = list(range(rank)) if info.operand(3) is None else info.literal_ints(3)
    return None if axes is None else [axis % rank for axis in axes]


def _pads_nothing_constant(info: OpInfo) -> bool:
    if info.attribute("mode", "constant") != "constant":
        return True
    if info.version < 11:
        return not info.attribute("value", 0.0)
    value = info.literal(2)
    return info.operand(2) is None or (value is not None and not value.any())


@sharding_rule("CumSum", "CumProd")
def _cumulative(info: OpInfo) -> Rule | None:
    axis = info.literal_ints(1)
    rank = len(info.shape(0))
    if axis is None:
        return None
    others = [dim for dim in range(rank) if dim != axis[0] % rank]
    return _keep(info, others, linear=info.name == "CumSum")


@sharding_rule("CenterCropPad")
def _center(info: OpInfo) -> Rule:
    """Split dimensions without a new size; the others are cropped or padded around their middle."""
    rank = len(info.shape(0))
    moved = {axis % rank for axis in info.attribute("axes", range(rank))}
    return _keep(info, [dim for dim in range(rank) if dim not in moved])


@sharding_rule("Trilu")
def _trilu(info: OpInfo) -> Rule:
    return _keep(info, range(len(info.shape(0)) - 2))


@sharding_rule("ReverseSequence")
def _reverse_sequence(info: OpInfo) -> Rule:
    """Split the batch, along with the lengths; time is reversed, so it stays whole."""
    batch, time = info.attribute("batch_axis", 1), info.attribute("time_axis", 0)
    factors = [FactorMap({0: batch, 1: 0}, {0: batch})]
    factors += kept_factors(info, [d for d in range(len(info.shape(0))) if d not in (batch, time)])
    return rule_of(info, factors, linear=linear_in(info, (0,)))
