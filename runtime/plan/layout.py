"""Layouts of a plan: parsing, and slicing and assembling arrays.

A layout has one placement per mesh axis: ``R`` (replicate), ``S(d)`` (shard dimension d) or
``P(sum)``, ``P(max)``, ``P(min)`` (partial results that must still be reduced). Several axes that
shard one dimension split it major to minor in mesh order, or by their turns: ``S(d, 0)`` before
``S(d, 1)``. A rank's mesh coordinates are its row-major position in the mesh. Parts are equal. If
an axis nearly divides a dimension, each part is rounded up and the last parts end with padding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

__all__ = ["Layout", "assemble", "gather_global", "parse_layout"]

_PLACEMENT = re.compile(r"R|S\((0|[1-9][0-9]{0,8})(?:, (0|[1-9][0-9]?))?\)|P\((sum|max|min)\)")
_PADDING = 3  # padding is at most 1/3 of the dimension
_REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Layout:
    """The layout of a tensor on a mesh.

    ``shard`` is the sharded dimension per mesh axis, ``partial`` the reduction; both are None on
    the other axes. ``padded`` has (dimension, global size) of each dimension with padding: parts
    are equal, and positions from the global size on are unused. ``order`` lists the mesh axes, so
    that axes that shard one dimension are major to minor; empty means mesh order.
    """

    mesh: tuple[int, ...]
    shard: tuple[int | None, ...]
    partial: tuple[str | None, ...]
    padded: tuple[tuple[int, int], ...] = ()
    order: tuple[int, ...] = ()

    def for_shape(self, shape: Sequence[int | str]) -> Layout:
        """Return the layout of a tensor of ``shape``, with its padded dimensions.

        A dimension is padded if a single axis splits it and nearly divides its size. Symbolic
        sizes are never padded.
        """
        sizes = ((d, n) for d, n in enumerate(shape) if isinstance(n, int))
        return replace(self, padded=tuple((d, n) for d, n in sizes if self._pads(d, n)))

    def _pads(self, dim: int, size: int) -> bool:
        parts = self.parts(dim)
        padding = -size % parts
        return self.shard.count(dim) == 1 and 0 < padding <= size // _PADDING

    @property
    def is_partial(self) -> bool:
        return any(self.partial)

    def parts(self, dim: int) -> int:
        """Return the number of parts of dimension ``dim``."""
        sizes = (n for n, d in zip(self.mesh, self.shard, strict=True) if d == dim)
        return math.prod(sizes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        return tuple(int(c) for c in np.unravel_index(rank, self.mesh))

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one rank's part; raises `UserError` if a split is uneven."""
        self.check(shape)
        return tuple(-(-size // self.parts(dim)) for dim, size in enumerate(shape))

    def global_shape(self, local: Sequence[int]) -> tuple[int, ...]:
        """Return the global shape for parts of shape ``local``."""
        known = dict(self.padded)
        return tuple(known.get(dim, size * self.parts(dim)) for dim, size in enumerate(local))

    def check(self, shape: Sequence[int | str]) -> None:
        """Raise `UserError` unless every sharded dimension exists, and divides or is padded.

        Symbolic sizes are not checked.
        """
        missing = [d for d in self.shard if d is not None and d >= len(shape)]
        if missing:
            raise UserError(
                f"layout shards dimension {missing[0]}, expected one of {len(shape)} dimensions"
            )
        for dim, size in enumerate(shape):
            if isinstance(size, int) and size % self.parts(dim) and (dim, size) not in self.padded:
                raise UserError(
                    f"dimension {dim} does not divide into {self.parts(dim)} parts, got: {size}"
                )

    def bounds(self, shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """Return the rank's part as slices of a global array of ``shape``, without padding."""
        return _bounds(self, tuple(shape), rank)

    def part(self, dim: int, rank: int) -> int:
        """Return the index of the rank's part along dimension ``dim``."""
        part, coordinates = 0, self.coordinates(rank)
        for axis in self.order or range(len(self.mesh)):
            if self.shard[axis] == dim:
                part = part * self.mesh[axis] + coordinates[axis]
        return part

    def local_slice(self, array: Array, rank: int) -> Array:
        """Return the rank's part of a global array, contiguous, with zeros as padding.

        Raises `UserError` for a partial layout.
        """
        part = self.part_of(array, rank)
        if self.padded:
            whole = np.zeros(self.local_shape(array.shape), array.dtype)
            whole[self.real(array.shape, rank)] = part
            return whole
        return np.ascontiguousarray(part).reshape(part.shape)

    def real(self, shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """Return the slices of the rank's part of a tensor of ``shape`` that are not padding."""
        return tuple(slice(own.stop - own.start) for own in self.bounds(shape, rank))

    def put(self, whole: Array, part: Array, rank: int) -> None:
        """Write the rank's part, without its padding, into ``whole``."""
        whole[self.bounds(whole.shape, rank)] = part[self.real(whole.shape, rank)]

    def part_of(self, array: Array, rank: int) -> Array:
        """Return a view of the rank's part of a global array, without padding.

        Raises `UserError` for a partial layout.
        """
        if self.is_partial:
            raise UserError("a partial layout has no slices, expected R or S")
        # The ellipsis makes the part of a scalar an array, too.
        where: tuple[Any, ...] = (*self.bounds(array.shape, rank), ...)
        part: Array = array[where]
        return part

    @property
    def copies(self) -> int:
        """The number of sets of ranks that have the whole tensor."""
        return math.prod(n for n, same in zip(self.mesh, self._replicates, strict=True) if same)

    def sources(self, copy: int = 0) -> tuple[int, ...]:
        """Return one rank per part, from replica set ``copy``; together they have the whole."""
        return tuple(r for r in range(math.prod(self.mesh)) if self._copy_of(r) == copy)

    @property
    def _replicates(self) -> list[bool]:
        pairs = zip(self.shard, self.partial, strict=True)
        return [dim is None and reduction is None for dim, reduction in pairs]

    def _copy_of(self, rank: int) -> int:
        """Return the rank's position along the axes that replicate, row-major."""
        copy = 0
        for n, same, c in zip(self.mesh, self._replicates, self.coordinates(rank), strict=True):
            copy = copy * n + c if same else copy
        return copy


@lru_cache(maxsize=4096)
def _bounds(layout: Layout, shape: tuple[int, ...], rank: int) -> tuple[slice, ...]:
    """Return `Layout.bounds`, cached: the ranks of a session call it in every run."""
    local = layout.local_shape(shape)
    starts = [layout.part(dim, rank) * size for dim, size in enumerate(local)]
    ends = zip(starts, local, shape, strict=True)
    return tuple(slice(min(at, n), min(at + size, n)) for at, size, n in ends)


def parse_layout(texts: Sequence[str], mesh: Sequence[int]) -> Layout:
    """Return the layout written as ``texts``, one per axis of ``mesh``; raises `UserError`."""
    if len(texts) != len(mesh):
        raise UserError(
            f"layout {' '.join(texts)}: expected {len(mesh)} placements, one per mesh axis, "
            f"got: {len(texts)}"
        )
    found = [_PLACEMENT.fullmatch(text) for text in texts]
    for text, match in zip(texts, found, strict=True):
        if match is None:
            raise UserError(f"unknown placement, expected R, S(d) or P(sum|max|min), got: {text}")
    if len({m[3] for m in found if m and m[3]}) > 1:
        raise UserError(f"layout {' '.join(texts)}: expected partial axes of one reduction")
    shard = tuple(int(m[1]) if m and m[1] else None for m in found)
    turns = tuple(int(m[2]) if m and m[2] else None for m in found)
    partial = tuple(m[3] if m else None for m in found)
    return Layout(tuple(mesh), shard, partial, order=_order(texts, shard, turns))


def _order(
    texts: Sequence[str], shard: Sequence[int | None], turns: Sequence[int | None]
) -> tuple[int, ...]:
    """Return the mesh axes by their turns, () for mesh order; raises `UserError`."""
    for dim in {d for d, turn in zip(shard, turns, strict=True) if turn is not None}:
        own = [turn for d, turn in zip(shard, turns, strict=True) if d == dim]
        if {*own} != {*range(len(own))}:
            raise UserError(
                f"layout {' '.join(texts)}: expected turns from 0 to {len(own) - 1} on all axes "
                f"that shard dimension {dim}"
            )
    axes = sorted(range(len(turns)), key=lambda axis: turns[axis] or 0)
    return () if axes == [*range(len(turns))] else tuple(axes)


def gather_global(parts: Mapping[int, Array], layout: Layout, copy: int = 0) -> Array:
    """Return the global array of ``parts``, by rank; needs `Layout.sources` of ``copy``."""
    return assemble(((rank, parts[rank]) for rank in layout.sources(copy)), layout)


def assemble(parts: Iterable[tuple[int, Array]], layout: Layout) -> Array:
    """Return the global array of at least one (rank, part): `Layout.sources` of a copy, in order.

    Each part is copied before the next is requested, so parts may share a buffer.
    """
    whole: Array | None = None
    for rank, part in parts:
        if whole is None:
            whole = np.empty(layout.global_shape(part.shape), part.dtype)
        where, part = layout.bounds(whole.shape, rank), part[layout.real(whole.shape, rank)]
        reduction = _pending(layout, rank)
        whole[where] = _REDUCE[reduction](whole[where], part) if reduction else part
    assert whole is not None
    return whole


def _pending(layout: Layout, rank: int) -> str | None:
    """Return the reduction that combines the rank's part with the parts written before it."""
    axes = zip(layout.coordinates(rank), layout.partial, strict=True)
    return next((p for c, p in axes if p is not None and c > 0), None)
