"""`pad-once`: cut what is shifted in many ways out of one padded copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensoropt.compiler.training.gradients.sliding import pad, strided
from tensoropt.dialects.build import Build, shape_of, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    constant_value,
    function,
    is_no_value,
    opsets,
    owner,
)
from tensoropt.dialects.topt import keys
from tensoropt.passes.base import Pass

__all__ = ["PadOncePass"]

_FEWEST = 3
_NARROW = 64
"""Elements of the last dimension from which on a shift is as fast as a slice."""
_OPERANDS_SINCE = 11

_Run = tuple[int, int, int]
"""First element, count and step along one dimension; what lies outside is zero."""


@dataclass(frozen=True)
class _View:
    """A value that is ``runs`` of ``source``, by slices alone or, if it ``is_shifted``, by Pads."""

    source: ir.Value
    runs: tuple[_Run, ...]
    is_shifted: bool = False

    @property
    def outside(self) -> list[tuple[int, int]]:
        """How far it reaches before the source and behind it, along each dimension."""
        sizes = zip(self.runs, sizes_of(self.source), strict=True)
        return [
            (max(-first, 0), max(first + (count - 1) * step + 1 - size, 0))
            for (first, count, step), size in sizes
        ]


@dataclass(frozen=True)
class PadOncePass(Pass):
    """Makes one copy with zeros around it of what is shifted by `Pad` in three ways or more.

    The gradient of the weights of a convolution shifts an image by each element of the window,
    since ranks with parts of it swap edges for that. On a rank that has all of a dimension, slices
    of one padded copy are faster where the last dimension has fewer than 64 elements: ONNX Runtime
    moves these one by one where a `Pad` takes elements away. Shifts that follow each other, and
    slices with a step between them, become one slice. Refuses nothing. Linear in the operations.
    """

    name: ClassVar[str] = "pad-once"
    summary: ClassVar[str] = "Let shifts of one tensor be slices of a padded copy."

    def run(self, module: ir.Module) -> None:
        opset = opsets(module).get("", 0)
        if opset < _OPERANDS_SINCE:
            return
        with module.context, ir.Location.unknown():
            views = _views(function(module).regions[0].blocks[0])
            by_source: dict[ir.Value, list[tuple[ir.Value, _View]]] = {}
            for value, view in views.items():
                if _is_read(value, views):
                    by_source.setdefault(view.source, []).append((value, view))
            for source, read in by_source.items():
                shifts = sum(view.is_shifted for _, view in read)
                if shifts >= _FEWEST and sizes_of(source)[-1] < _NARROW:
                    _cut_out(source, read, opset)


def _views(block: ir.Block) -> Mapping[ir.Value, _View]:
    """Return the results of shifts and slices as views of what they are made of, in order."""
    found: dict[ir.Value, _View] = {}
    for held in block:
        op = held.operation
        if op.name in ("onnx.Pad", "onnx.Slice") and _is_static(op):
            view = found.get(op.operands[0]) or _whole(op.operands[0])
            further = _padded(op, view) if op.name == "onnx.Pad" else _sliced(op, view)
            if further is not None:
                found[op.results[0]] = further
    return found


def _is_static(op: ir.Operation) -> bool:
    values = (op.operands[0], op.results[0])
    ranked = all(isinstance(value.type, ir.RankedTensorType) for value in values)
    return ranked and all(None not in shape_of(value) for value in values)


def _is_read(value: ir.Value, views: Mapping[ir.Value, _View]) -> bool:
    """Say whether something else than a further view reads ``value``."""
    return any(
        not len(use.owner.operation.results) or use.owner.operation.results[0] not in views
        for use in value.uses
    )


def _whole(value: ir.Value) -> _View:
    return _View(value, tuple((0, size, 1) for size in sizes_of(value)))


def _padded(op: ir.Operation, view: _View) -> _View | None:
    """Return what a Pad by zeros makes of ``view``; ``None`` for another, for one that takes no
    elements away, and where zeros would stand for what the source has there."""
    ends, (fill, axes) = constant_value(op.operands[1]), _optional(op, 2, 2)
    fills = np.zeros(1) if fill is None else constant_value(fill)
    is_zero = fills is not None and not fills.any()
    is_constant = attribute(op, "mode", "constant") == "constant"
    if ends is None or axes is not None or not (is_zero and is_constant):
        return None
    if ends.min(initial=0) >= 0:  # such as the padding of parts: a copy of it would stay for long
        return None
    runs, whole = list(view.runs), _whole(view.source).runs
    for dim, (begin, end) in enumerate(ends.reshape(2, -1).T.tolist()):
        if begin or end:
            if runs[dim] != whole[dim]:
                return None
            runs[dim] = (-begin, runs[dim][1] + begin + end, 1)
    return replace(view, runs=tuple(runs), is_shifted=True)


def _optional(op: ir.Operation, first: int, count: int) -> list[ir.Value | None]:
    """Return so many operands; ``None`` for those that are not given."""
    given = [None if is_no_value(value) else value for value in list(op.operands)[first:]]
    return [*given, *[None] * count][:count]


def _sliced(op: ir.Operation, view: _View) -> _View | None:
    """Return what a Slice makes of ``view``; ``None`` where bounds are unknown, or count from the
    end."""
    bounds = [constant_value(value) for value in list(op.operands)[1:]]
    if len(bounds) < 4 or any(one is None for one in bounds):
        return None
    starts, _, axes, steps = ([int(n) for n in one] for one in bounds if one is not None)
    if any(n < 0 for n in (*starts, *axes)) or min(steps) < 1:
        return None
    runs, counts = list(view.runs), sizes_of(op.results[0])
    for start, axis, step in zip(starts, axes, steps, strict=True):
        first, _, gap = runs[axis]
        runs[axis] = (first + start * gap, counts[axis], gap * step)
    return replace(view, runs=tuple(runs))


def _cut_out(source: ir.Value, read: Sequence[tuple[ir.Value, _View]], opset: int) -> None:
    """Put slices of ``source``, or of one padded copy, in place of values, which are in order."""
    reach = [
        tuple(map(max, zip(*ends, strict=True)))
        for ends in zip(*(view.outside for _, view in read), strict=True)
    ]
    ends = {dim: (own[0], own[1]) for dim, own in enumerate(reach) if any(own)}
    start = _maker(read[0][0])
    with ir.InsertionPoint(start):
        padded = pad(_beside(start, opset), source, ends)
    for value, view in read:
        from_padded = any(map(any, view.outside))
        runs = {
            dim: (first + reach[dim][0] * from_padded, count, step)
            for dim, (first, count, step) in enumerate(view.runs)
        }
        op = _maker(value)
        with ir.InsertionPoint(op):
            held = padded if from_padded else source
            value.replace_all_uses_with(strided(_beside(op, opset), held, runs))


def _maker(view: ir.Value) -> ir.Operation:
    op = owner(view)
    assert op is not None
    return op


def _beside(op: ir.Operation, opset: int) -> Build:
    """Return what builds at the location of ``op``, with its marks."""
    marks = {name: held for name, held in op.attributes.items() if name.startswith("topt.")}
    for name in keys.SEARCHED:
        marks.pop(name, None)
    return Build(op.location, opset, marks)
