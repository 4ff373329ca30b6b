"""Copies of a box of one array to a box of another, as the strided copies of CUDA.

Both arrays are dense. Dimensions that are contiguous in both arrays are merged; CUDA copies three
of the remaining dimensions per call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Part", "Strided", "strided_copies"]

_MOST_PITCH = (1 << 31) - 1  # bytes: limit of CUDA's copies (cudaDeviceProp.memPitch)


@dataclass(frozen=True)
class Part:
    """A box of a dense array of ``shape``, by its first index and its size in elements."""

    shape: tuple[int, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]

    @classmethod
    def from_box(cls, shape: Sequence[int], box: Sequence[slice]) -> Part:
        """Return the part of an array of ``shape`` selected by ``box``."""
        start = tuple(int(side.start) for side in box)
        return cls(tuple(shape), start, tuple(int(s.stop) - int(s.start) for s in box))


@dataclass(frozen=True)
class Strided:
    """A copy of ``slices`` times ``rows`` runs of ``width`` bytes, from ``source`` to ``to``.

    ``source`` and ``to`` are byte offsets. ``pitch`` is the distance of rows in bytes and
    ``slice_rows`` the distance of slices in rows, for the target first and then for the source.
    """

    to: int
    source: int
    width: int
    rows: int = 1
    pitch: tuple[int, int] = (0, 0)
    slices: int = 1
    slice_rows: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class _Side:
    """One dimension of both boxes: ``count`` steps, with the stride in bytes in each array."""

    count: int
    to: int
    source: int

    def merge(self, inner: _Side) -> _Side | None:
        """Return both dimensions merged, None if there is a gap between them."""
        dense = self.to == inner.count * inner.to and self.source == inner.count * inner.source
        return _Side(self.count * inner.count, inner.to, inner.source) if dense else None


def strided_copies(to: Part, source: Part, item: int) -> Iterator[Strided]:
    """Yield the copies of a box of elements of ``item`` bytes; the parts have the same size.

    Yields one copy per index of the dimensions beyond the third.
    """
    if 0 in to.size:
        return
    *outer, run = _sides(to, source, item)
    starts = tuple(_offset(part, item) for part in (to, source))
    inner: list[_Side] = []
    while outer and len(inner) < 2 and max(outer[-1].to, outer[-1].source) <= _MOST_PITCH:
        inner.insert(0, outer.pop())
    for index in np.ndindex(*(side.count for side in outer)):
        steps = list(zip(index, outer, strict=True))
        yield _copy(
            starts[0] + sum(i * side.to for i, side in steps),
            starts[1] + sum(i * side.source for i, side in steps),
            run.count,
            inner,
        )


def _copy(to: int, source: int, width: int, inner: Sequence[_Side]) -> Strided:
    if not inner:
        return Strided(to, source, width)
    *slices, rows = inner
    pitch = rows.to, rows.source
    if not slices:
        return Strided(to, source, width, rows.count, pitch)
    apart = slices[0].to // rows.to, slices[0].source // rows.source
    return Strided(to, source, width, rows.count, pitch, slices[0].count, apart)


def _sides(to: Part, source: Part, item: int) -> list[_Side]:
    """Return the merged dimensions, outermost first; the last has a stride of one byte."""
    sides = [_Side(item, 1, 1)]
    strides = zip(_strides(to.shape, item), _strides(source.shape, item), strict=True)
    for count, (ours, theirs) in reversed(list(zip(to.size, strides, strict=True))):
        side = _Side(count, ours, theirs)
        if count == 1:
            continue
        merged = side.merge(sides[0])
        sides[:1] = [side, sides[0]] if merged is None else [merged]
    return sides


def _strides(shape: Sequence[int], item: int) -> list[int]:
    """Return the stride in bytes of each dimension."""
    return [item * math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _offset(part: Part, item: int) -> int:
    return sum(i * stride for i, stride in zip(part.start, _strides(part.shape, item), strict=True))
