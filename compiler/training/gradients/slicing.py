"""Gradients of slicing and padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tensoropt.compiler.sharding.rule.slicing import slice_indices
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.compiler.training.gradients.scattering import add_elements
from tensoropt.dialects.build import Build, shape_of, sizes_of
from tensoropt.dialects.mlir import ir

__all__: list[str] = []


@gradient("Slice")
def slice_(b: Backward) -> Gradients:
    """dY put back into zeros, spread out if the slice had steps."""
    dx = b.dy
    for dim, cut in _cuts(b).items():
        dx = _put_back(b.make, dx, dim, cut, b.shape(0)[dim])
    return b.first(dx)


def _cuts(b: Backward) -> dict[int, range]:
    """Return the elements taken along each sliced dimension."""
    shape = b.shape(0)
    starts, ends = _constants(b, 1), _constants(b, 2)
    axes = _constants(b, 3) or list(range(len(starts)))
    steps = _constants(b, 4) or [1] * len(starts)
    found = {}
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        if (cut := slice_indices(shape[axis], *bounds)) != range(shape[axis]):
            found[axis % len(shape)] = cut
    return found


def _constants(b: Backward, index: int) -> list[int]:
    """Return the numbers of an operand, none if it is omitted."""
    values = b.info.literal_ints(index) if b.has(index) else []
    if values is None:
        raise b.unsupported(f"expected operand {index} to be a constant, got: a computed value")
    return values


def _put_back(make: Build, dy: ir.Value, dim: int, cut: range, size: int) -> ir.Value:
    """Return zeros of ``size`` along ``dim``, with ``dy`` at the positions of ``cut``."""
    if cut.step < 0:
        dy, cut = make.take(dy, make.ints(range(shape_of(dy)[dim] or 0)[::-1]), dim), cut[::-1]
    first, last = cut[0], cut[-1]
    if cut.step > 1 and len(cut) > 1:
        # Zeros around each element, so that it has the place that it had among `step` elements.
        shape, place = sizes_of(dy), first % cut.step
        sides = place, cut.step - 1 - place
        wide = make.pad(make.unsqueeze(dy, [dim + 1]), dim + 1, sides, 0.0)
        dy = make.reshape(wide, [*shape[:dim], shape[dim] * cut.step, *shape[dim + 1 :]])
        first, last = first - sides[0], last + sides[1]
    return _pad_or_crop(make, dy, dim, (first, size - last - 1))


def _pad_or_crop(make: Build, x: ir.Value, dim: int, ends: tuple[int, int]) -> ir.Value:
    """Return ``x`` padded with zeros at its ends; negative ends crop instead."""
    shape = shape_of(x)
    before, after = (max(0, -end) for end in ends)
    if before or after:
        x = make.slice(x, dim, before, (shape[dim] or 0) - after)
    added = max(0, ends[0]), max(0, ends[1])
    return make.pad(x, dim, added, 0.0) if any(added) else x


@gradient("Pad")
def pad(b: Backward) -> Gradients:
    """The inner part of dY; the gradient of padding goes to the elements that it copied."""
    mode, dx = str(b.info.attribute("mode", "constant")), b.dy
    for dim, ends in _pads(b).items():
        if mode == "constant":
            dx = _pad_or_crop(b.make, dx, dim, (-ends[0], -ends[1]))
        else:
            dx = _fold(b, dx, dim, ends, mode)
    fill = None
    if b.has(2) and b.wanted[2]:
        fill = b.unbroadcast(b.make.sub(_total(b.make, b.dy), _total(b.make, dx)), 2)
        fill = b.make.reshape(fill, b.shape(2))
    return b.first(dx, None, fill)[: len(b.operands)]


def _pads(b: Backward) -> dict[int, tuple[int, int]]:
    """Return the padding before and after, by dimension, where any is added."""
    pads, rank = _constants(b, 1), len(b.shape(0))
    axes = _constants(b, 3) or list(range(rank))
    pairs = zip(pads[: len(axes)], pads[len(axes) :], strict=True)
    return {axis % rank: pair for axis, pair in zip(axes, pairs, strict=True) if any(pair)}


def _fold(b: Backward, dy: ir.Value, dim: int, ends: tuple[int, int], mode: str) -> ir.Value:
    """Return the gradient if padding copied elements at known positions of the operand."""
    import numpy as np

    shape, size = sizes_of(dy), b.shape(0)[dim]
    before, after = (max(0, -end) for end in ends)
    # Negative ends crop the operand before it is padded.
    inner = np.arange(size, dtype=np.int64)[before : size - after]
    sources = np.pad(inner, (max(0, ends[0]), max(0, ends[1])), mode=_NUMPY_MODES[mode])
    line = sources.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    places = b.make.expand(b.make.constant(line), shape)
    return add_elements(b.make, dy, places, dim, size)


_NUMPY_MODES: Mapping[str, Literal["edge", "reflect", "wrap"]] = {
    "edge": "edge",
    "reflect": "reflect",
    "wrap": "wrap",
}


def _total(make: Build, x: ir.Value) -> ir.Value:
    return make.reduce("ReduceSum", x, range(len(shape_of(x))), keepdims=False)


@gradient("CenterCropPad")
def center_crop_pad(b: Backward) -> Gradients:
    """dY, padded where the operand was cropped and cropped where it was padded."""
    dx = b.dy
    for dim, (own, made) in enumerate(zip(b.shape(0), shape_of(b.dy), strict=True)):
        lost = own - (made or 0)
        before = lost // 2 if lost > 0 else -(-lost // 2)
        dx = _pad_or_crop(b.make, dx, dim, (before, lost - before))
    return b.first(dx)
