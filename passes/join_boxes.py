"""`join-boxes`: join tensors instead of scattering the elements of a box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.shapes.refine import replace_value
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, constant_value, function, made_by, opsets, walk
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["JoinBoxesPass"]

_SINCE = 13
"""First opset of the axes of `Unsqueeze` as an operand."""


@dataclass(frozen=True)
class JoinBoxesPass(Pass):
    """Replaces a `ScatterND` that writes a box of elements by a `Concat`.

    `x[..., :n] = y` is exported with an index of every element, as in DeepSeek's attention: more
    bytes than the elements have, and no dimension can be split. The box may be shorter than the
    tensor along one dimension. Indices are literals, or literals that are expanded and joined. If
    `Concat` made the tensor, its operands are joined again where they have the ends of the box.
    Refuses nothing. Linear in the operations and the literals.
    """

    name: ClassVar[str] = "join-boxes"
    summary: ClassVar[str] = "Join tensors instead of scattering the elements of a box."

    def run(self, module: ir.Module) -> None:
        version = opsets(module).get("", 1)
        if version < _SINCE:
            return
        namer = OpNamer(module)
        with module.context, ir.Location.unknown():
            for op in list(walk(function(module))):
                starts = _box(op) if op.name == "onnx.ScatterND" else None
                if starts is not None:
                    _join(op, starts, namer, version)
            forget_removed(module)


def _box(op: ir.Operation) -> list[int] | None:
    """Return the first index of the box in each indexed dimension, ``None`` for other indices."""
    data, indices, updates = (static_shape(value.type) for value in op.operands)
    if data is None or indices is None or updates is None or 0 in (*data, *indices):
        return None
    *outer, depth = indices
    if attribute(op, "reduction", "none") != "none" or len(outer) != depth:
        return None
    shorter = sum(size != own for size, own in zip(data, outer, strict=False))
    if updates != [*outer, *data[depth:]] or shorter > 1:
        return None
    starts = [
        _start(own, dim, outer) for dim, own in enumerate(_coordinates(op.operands[1], depth))
    ]
    known = [start for start in starts if start is not None]
    return known if len(known) == depth else None


def _coordinates(indices: ir.Value, depth: int) -> Iterator[npt.NDArray[Any] | None]:
    """Yield the indices along each dimension, which may broadcast."""
    array, maker = constant_value(indices), made_by(indices, "Concat")
    if array is not None:
        yield from np.moveaxis(array, -1, 0)
    elif maker is None or len(maker.operands) != depth:
        yield None
    elif attribute(maker, "axis", 0) in (-1, depth):
        yield from (_column(value, depth) for value in maker.operands)


def _column(value: ir.Value, depth: int) -> npt.NDArray[Any] | None:
    """Return the literal that is expanded and gets a last dimension of size 1."""
    array, maker = constant_value(value), made_by(value, "Unsqueeze")
    if array is not None:
        return array[..., 0] if array.ndim == depth + 1 else None
    if maker is None:
        return None
    axes = constant_value(maker.operands[1])
    if axes is None or axes.tolist() not in ([-1], [depth]):
        return None
    expand = made_by(maker.operands[0], "Expand")
    return constant_value(maker.operands[0] if expand is None else expand.operands[0])


def _start(array: npt.NDArray[Any] | None, dim: int, outer: Sequence[int]) -> int | None:
    """Return the first of consecutive indices along ``dim``, ``None`` for other indices."""
    if array is None:
        return None
    array = array.reshape((1,) * (len(outer) - array.ndim) + array.shape)
    start, count = int(array.flat[0]), outer[dim]
    own = np.arange(start, start + count).reshape(-1, *(1,) * (len(outer) - dim - 1))
    agrees = array.shape[dim] == count and np.array_equal(array, np.broadcast_to(own, array.shape))
    return start if agrees and start >= 0 else None


def _join(op: ir.Operation, starts: Sequence[int], namer: OpNamer, version: int) -> None:
    data, _, updates = op.operands
    sizes, box = static_shape(data.type) or [], static_shape(updates.type) or []
    dim = next((d for d, size in enumerate(sizes) if size != box[d]), None)
    made = updates
    if dim is not None:
        start, stop = starts[dim], starts[dim] + box[dim]
        with ir.InsertionPoint(op):
            make = NamedBuild(namer, op, version)
            before = _run(make, data, dim, 0, start)
            made = make.concat([*before, updates, *_run(make, data, dim, stop, sizes[dim])], dim)
    replace_value(op.results[0], made)
    op.erase()


def _run(make: NamedBuild, x: ir.Value, dim: int, start: int, stop: int) -> list[ir.Value]:
    """Return values that make up ``x`` from ``start`` to ``stop`` along ``dim``."""
    if start == stop:
        return []
    maker = made_by(x, "Concat")
    if maker is not None:
        rank = len(static_shape(x.type) or ())
        sizes = [(static_shape(value.type) or [0] * rank)[dim] for value in maker.operands]
        ends = np.cumsum([0, *sizes]).tolist()
        if int(attribute(maker, "axis", 0)) % rank == dim and {start, stop} <= {*ends}:
            return list(maker.operands)[ends.index(start) : ends.index(stop)]
    return [make.slice(x, dim, start, stop)]
