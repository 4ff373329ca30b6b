"""`pad-once`: replace many shifts of a tensor by slices of one padded copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tensoropt.compiler.training.gradients.sliding import pad, take_strided
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
from tensoropt.dialects.opsets import PAD_OPERANDS_SINCE
from tensoropt.dialects.topt import keys
from tensoropt.passes.base import Pass

__all__ = ["PadOncePass"]

_FEWEST = 3
_NARROW = 64
"""Size of the last dimension from which a shift is as fast as a slice."""

_Run = tuple[int, int, int]
"""First element, count and step along one dimension; elements outside the source are zero."""


@dataclass(frozen=True)
class _View:
    """A value that consists of ``runs`` of ``source``; ``is_shifted`` if it was made by a Pad."""

    source: ir.Value
    runs: tuple[_Run, ...]
    is_shifted: bool = False

    @property
    def outside(self) -> list[tuple[int, int]]:
        """Number of elements before and after the source, per dimension."""
        sizes = zip(self.runs, sizes_of(self.source), strict=True)
        return [
            (max(-first, 0), max(first + (count - 1) * step + 1 - size, 0))
            for (first, count, step), size in sizes
        ]


@dataclass(frozen=True)
class PadOncePass(Pass):
    """Makes one zero-padded copy of a tensor that `Pad` shifts in three or more ways.

    The gradient of the weights of a convolution shifts an image by each element of the window, so
    that ranks with parts of the image can swap edges. On a rank with the whole dimension, slices of
    one padded copy are faster if the last dimension has fewer than 64 elements: ONNX Runtime copies
    these one by one in a `Pad` that removes elements. Successive shifts and strided slices become
    one slice. Refuses nothing. Linear in the operations.
    """

    name: ClassVar[str] = "pad-once"
    summary: ClassVar[str] = "Replace shifts of one tensor by slices of a padded copy."

    def run(self, module: ir.Module) -> None:
        opset = opsets(module).get("", 0)
        if opset < PAD_OPERANDS_SINCE:
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
    """Return the results of shifts and slices as views of their sources, in order."""
    found: dict[ir.Value, _View] = {}
    for child in block:
        op = child.operation
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
    """Return whether an operation other than a further view reads ``value``."""
    return any(
        not len(use.owner.operation.results) or use.owner.operation.results[0] not in views
        for use in value.uses
    )


def _whole(value: ir.Value) -> _View:
    return _View(value, tuple((0, size, 1) for size in sizes_of(value)))


def _padded(op: ir.Operation, view: _View) -> _View | None:
    """Return the view of a zero Pad of ``view``.

    ``None`` for other pads, for a Pad that removes no elements, and if zeros would hide elements of
    the source.
    """
    ends = constant_value(op.operands[1])
    given = [None if is_no_value(value) else value for value in op.operands]
    fill, axes = [*given[2:], None, None][:2]
    fills = np.zeros(1) if fill is None else constant_value(fill)
    is_zero = fills is not None and not fills.any()
    is_constant = attribute(op, "mode", "constant") == "constant"
    if ends is None or axes is not None or not (is_zero and is_constant):
        return None
    if ends.min(initial=0) >= 0:  # such as padding of parts: its copy would be live for long
        return None
    runs, whole = list(view.runs), _whole(view.source).runs
    for dim, (begin, end) in enumerate(ends.reshape(2, -1).T.tolist()):
        if begin or end:
            if runs[dim] != whole[dim]:
                return None
            runs[dim] = (-begin, runs[dim][1] + begin + end, 1)
    return replace(view, runs=tuple(runs), is_shifted=True)


def _sliced(op: ir.Operation, view: _View) -> _View | None:
    """Return the view of a Slice of ``view``; ``None`` if bounds are unknown or negative."""
    bounds = [constant_value(value) for value in list(op.operands)[1:]]
    if len(bounds) < 4 or any(bound is None for bound in bounds):
        return None
    starts, _, axes, steps = ([int(n) for n in bound] for bound in bounds if bound is not None)
    if any(n < 0 for n in (*starts, *axes)) or min(steps) < 1:
        return None
    runs, counts = list(view.runs), sizes_of(op.results[0])
    for start, axis, step in zip(starts, axes, steps, strict=True):
        first, _, gap = runs[axis]
        runs[axis] = (first + start * gap, counts[axis], gap * step)
    return replace(view, runs=tuple(runs))


def _cut_out(source: ir.Value, read: Sequence[tuple[ir.Value, _View]], opset: int) -> None:
    """Replace the values of ``read``, in order, by slices of ``source`` or of a padded copy."""
    reach = [
        tuple(map(max, zip(*ends, strict=True)))
        for ends in zip(*(view.outside for _, view in read), strict=True)
    ]
    ends = {dim: (own[0], own[1]) for dim, own in enumerate(reach) if any(own)}
    start = _maker(read[0][0])
    with ir.InsertionPoint(start):
        padded = pad(_builder_at(start, opset), source, ends)
    for value, view in read:
        from_padded = any(map(any, view.outside))
        runs = {
            dim: (first + reach[dim][0] * from_padded, count, step)
            for dim, (first, count, step) in enumerate(view.runs)
        }
        op = _maker(value)
        with ir.InsertionPoint(op):
            sliced = padded if from_padded else source
            value.replace_all_uses_with(take_strided(_builder_at(op, opset), sliced, runs))


def _maker(view: ir.Value) -> ir.Operation:
    op = owner(view)
    assert op is not None
    return op


def _builder_at(op: ir.Operation, opset: int) -> Build:
    """Return a builder with the location and the marks of ``op``."""
    marks = {name: mark for name, mark in op.attributes.items() if name.startswith("topt.")}
    for name in keys.SEARCHED:
        marks.pop(name, None)
    return Build(op.location, opset, marks)
