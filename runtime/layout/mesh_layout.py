"""Layouts on a mesh: slicing and assembling arrays.

A rank's mesh coordinates are its row-major position in the mesh. Parts are equal. If an axis nearly
divides a dimension, each part is rounded up and the last parts end with padding. A part of a
dimension in blocks has a piece of every block, each with its own padding, or a copy of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tensoropt.runtime.layout.layout import REPLICATE, Box, Layout, blocks_text, units_text
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

__all__ = ["COMBINERS", "MeshLayout", "assemble", "gather_global", "parse_layout"]

COMBINERS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class MeshLayout:
    """The layout of a tensor on a mesh.

    ``padded`` has (dimension, global size) of each dimension with padding or copies: the sizes of
    the parts do not add up to it.
    """

    mesh: Mesh
    layout: Layout
    padded: tuple[tuple[int, int], ...] = ()

    def for_shape(self, shape: Sequence[int | str]) -> MeshLayout:
        """Return the layout of a tensor of ``shape``, with its padded dimensions.

        Symbolic sizes are never padded.
        """
        sizes = ((dim, shape[dim]) for dim in self.layout.padded_dims(shape, self.mesh))
        fitting = (
            (dim, size)
            for dim, size in sizes
            if isinstance(size, int) and self.layout.can_split(dim, size, self.mesh)
        )
        return replace(self, padded=tuple(fitting))

    @property
    def is_partial(self) -> bool:
        return self.layout.has_partial

    def pieces(self, dim: int) -> int:
        """Return the number of pieces that dimension ``dim`` is split into."""
        return self.layout.pieces(dim, self.mesh)

    def position(self, dim: int, rank: int) -> int:
        """Return the index of the rank's piece along dimension ``dim``."""
        return self.mesh.linear(rank, self.layout.axes_splitting(dim))

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one rank's part; raises `UserError` if a split is uneven."""
        self.check(shape)
        return self.layout.local_shape(shape, self.mesh)

    def global_shape(self, local: Sequence[int]) -> tuple[int, ...]:
        """Return the global shape for parts of shape ``local``."""
        known = dict(self.padded)
        return tuple(known.get(dim, size * self.pieces(dim)) for dim, size in enumerate(local))

    def check(self, shape: Sequence[int | str]) -> None:
        """Raise `UserError` unless every split dimension exists, and divides or is padded.

        Symbolic sizes are not checked.
        """
        missing = [p.dim for p in self.layout.placements if p.is_split and p.dim >= len(shape)]
        if missing:
            raise UserError(
                f"layout shards dimension {missing[0]}, expected one of {len(shape)} dimensions"
            )
        for dim in self.layout.padded_dims(shape, self.mesh):
            if (dim, shape[dim]) not in self.padded:
                units = self.layout.units(dim)
                raise UserError(
                    f"dimension {dim} does not divide into {self.pieces(dim)} parts"
                    f"{f' of {units_text(units)} units' if units else ''}, got: {shape[dim]}"
                )
        for dim in {own.dim for own in self.layout.placements if own.blocks}:
            size = shape[dim]
            if isinstance(size, int) and not self.layout.can_split(dim, size, self.mesh):
                raise UserError(
                    f"dimension {dim} does not divide into {self.pieces(dim)} parts of blocks "
                    f"{blocks_text(self.layout.blocks(dim))}, got: {size}"
                )

    def boxes(self, shape: Sequence[int], rank: int, *, once: bool = False) -> tuple[Box, ...]:
        """Return the boxes of a global array of ``shape`` in the rank's part, without padding.

        There is one unless a dimension is split in blocks. With ``once``, units that several ranks
        have are empty except on the first.
        """
        return _boxes(self, tuple(shape), rank, once)

    def bounds(self, shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """Return the rank's part as slices of a global array of ``shape``, without padding.

        Raises `UserError` for a layout in blocks.
        """
        if self.layout.has_blocks:
            raise UserError(f"expected a layout without blocks, got: {self.layout}")
        return self.boxes(shape, rank)[0].whole

    def local_slice(self, array: Array, rank: int) -> Array:
        """Return the rank's part of a global array, contiguous, with zeros as padding.

        Raises `UserError` for a partial layout.
        """
        part = self.part_of(array, rank)
        if self.padded:
            whole = np.zeros(self.local_shape(array.shape), array.dtype)
            whole[tuple(map(slice, part.shape))] = part
            return whole
        return np.ascontiguousarray(part).reshape(part.shape)

    def real(self, part: Array, shape: Sequence[int], rank: int) -> Array:
        """Return the rank's part of a tensor of ``shape`` without its padding.

        It is a view unless blocks have padding: zeros take the place of padding between them.
        """
        boxes = self.boxes(shape, rank)
        if not self.padded or len(boxes) == 1:
            return part[boxes[0].part] if self.padded else part
        return _assembled(boxes, [part[box.part] for box in boxes])

    def put(self, whole: Array, part: Array, rank: int) -> None:
        """Write the rank's part, without its padding, into ``whole``."""
        for box in self.boxes(whole.shape, rank):
            whole[box.whole] = part[box.part]

    def part_of(self, array: Array, rank: int) -> Array:
        """Return the rank's part of a global array, without padding: a view unless it has blocks.

        Padding between blocks is zeros.

        Raises `UserError` for a partial layout.
        """
        if self.is_partial:
            raise UserError("a partial layout has no slices, expected R or S")
        if self.layout.is_replicated:  # no boxes for each new shape, as of the masks of texts
            whole: Array = array[...]  # an array even of a number
            return whole
        return self.read_part(array, array.shape, rank)

    def read_part(self, source: Any, shape: Sequence[int], rank: int) -> Array:
        """Return the rank's part of ``source``, of ``shape`` with a dimension, without padding.

        ``source`` is an array, or a tensor of a file that returns the arrays of slices. Padding
        between blocks is zeros.
        """
        boxes = self.boxes(shape, rank)
        if len(boxes) == 1:
            only: Array = source[boxes[0].whole]
            return only
        return _assembled(boxes, (source[box.whole] for box in boxes))

    @property
    def copies(self) -> int:
        """The number of sets of ranks that have the whole tensor."""
        return self.mesh.extent(self.layout.axes_of(REPLICATE))

    def sources(self, copy: int = 0) -> tuple[int, ...]:
        """Return one rank per part, from replica set ``copy``; together they have the whole."""
        axes = self.layout.axes_of(REPLICATE)
        return tuple(r for r in range(self.mesh.size) if self.mesh.linear(r, axes) == copy)


@lru_cache(maxsize=4096)
def _boxes(layout: MeshLayout, shape: tuple[int, ...], rank: int, once: bool) -> tuple[Box, ...]:
    """Return `MeshLayout.boxes`, cached: the ranks of a session call it in every run."""
    layout.check(shape)
    return layout.layout.local_boxes(shape, layout.mesh, rank, once=once)


def _assembled(boxes: Sequence[Box], arrays: Iterable[Array]) -> Array:
    """Return a part of several boxes without the padding at its end."""
    part = np.empty(0)
    for number, (box, array) in enumerate(zip(boxes, arrays, strict=True)):
        if not number:  # boxes are in order
            part = np.zeros([own.stop for own in boxes[-1].part], array.dtype)
        part[box.part] = array
    return part


def parse_layout(texts: Sequence[str], mesh: Sequence[int]) -> MeshLayout:
    """Return the layout written as ``texts``, one per axis of ``mesh``; raises `UserError`."""
    if len(texts) != len(mesh):
        raise UserError(
            f"layout {' '.join(texts)}: expected {len(mesh)} placements, one per mesh axis, "
            f"got: {len(texts)}"
        )
    layout = Layout.parse(texts)
    if layout.is_mixed:
        raise UserError(f"layout {' '.join(texts)}: expected partial axes of one reduction")
    return MeshLayout(Mesh(tuple(mesh)), layout)


def gather_global(parts: Mapping[int, Array], layout: MeshLayout, copy: int = 0) -> Array:
    """Return the global array of ``parts``, by rank; needs `MeshLayout.sources` of ``copy``."""
    return assemble(((rank, parts[rank]) for rank in layout.sources(copy)), layout)


def assemble(parts: Iterable[tuple[int, Array]], layout: MeshLayout) -> Array:
    """Return the global array of (rank, part) pairs, at least one.

    They are the `MeshLayout.sources` of a copy, in order. Each part is copied before the next is
    requested, so parts may share a buffer.
    """
    whole: Array | None = None
    for rank, part in parts:
        if whole is None:
            whole = np.empty(layout.global_shape(part.shape), part.dtype)
        reduction = _pending(layout, rank)
        for box in layout.boxes(whole.shape, rank, once=True):
            own = part[box.part]
            whole[box.whole] = COMBINERS[reduction](whole[box.whole], own) if reduction else own
    assert whole is not None
    return whole


def _pending(layout: MeshLayout, rank: int) -> str | None:
    """Return the reduction that combines the rank's part with the parts written before it."""
    axes = zip(layout.mesh.coordinates(rank), layout.layout.placements, strict=True)
    return next((own.reduction for c, own in axes if own.is_partial and c > 0), None)
