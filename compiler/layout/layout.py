"""Layouts: the distribution of a tensor over the ranks, as one placement per mesh axis."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Literal, overload

from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.sizes import Open, Size, Sizes, can_pad, divisor_of, part_of
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "PARTIAL_SUM",
    "REPLICATE",
    "Layout",
    "Placement",
    "Reduction",
    "partial",
    "reordered",
    "split",
]

Reduction = Literal["sum", "max", "min"]

_PLACEMENT = re.compile(r"R|S\((\d{1,9})\)|P\((sum|max|min)\)")
_TURN = re.compile(r"S\((\d{1,9}), (\d{1,2})\)")


@dataclass(frozen=True)
class Placement:
    """The distribution of a tensor along one mesh axis.

    ``S(d)`` splits tensor dimension ``d``, ``R`` replicates, ``P(sum|max|min)`` leaves on every
    rank a partial result that the reduction over the axis completes (AutoDDL, section 4).
    """

    kind: Literal["S", "R", "P"]
    dim: int = -1
    reduction: Reduction | None = None

    @property
    def is_split(self) -> bool:
        return self.kind == "S"

    @property
    def is_replicate(self) -> bool:
        return self.kind == "R"

    @property
    def is_partial(self) -> bool:
        return self.kind == "P"

    @staticmethod
    @cache
    def parse(text: str) -> Placement:
        """Return the placement written as ``R``, ``S(1)`` or ``P(sum)``."""
        match = _PLACEMENT.fullmatch(text)
        if match is None:
            raise UserError(f"placement: expected R, S(<dim>) or P(sum|max|min), got: '{text}'")
        if match[1] is not None:
            return split(int(match[1]))
        return partial(match[2]) if match[2] else REPLICATE

    def __str__(self) -> str:
        return {"S": f"S({self.dim})", "R": "R", "P": f"P({self.reduction})"}[self.kind]

    def __hash__(self) -> int:  # hashes only integers, so it is the same in every process
        return self.dim if self.kind == "S" else _HASHES[self.kind, self.reduction]


_HASHES: dict[tuple[str, Reduction | None], int] = {
    ("R", None): -3,
    ("P", "sum"): -4,
    ("P", "max"): -5,
    ("P", "min"): -6,
}


@cache
def split(dim: int) -> Placement:
    """Return ``S(dim)``."""
    return Placement("S", dim=dim)


@cache
def partial(reduction: Reduction) -> Placement:
    """Return ``P(reduction)``."""
    return Placement("P", reduction=reduction)


REPLICATE = Placement("R")
PARTIAL_SUM = partial("sum")


@dataclass(frozen=True)
class Layout:
    """One placement per mesh axis; several axes on one dimension split it major to minor.

    The default order is the order of the mesh. ``turned`` lists the exceptions, sorted: the axes,
    major first, that split one dimension in another order. In text each of these axes has its
    turn: ``[S(0, 1), R, S(0, 0)]`` splits dimension 0 by the third axis and each part by the first.
    """

    placements: tuple[Placement, ...]
    turned: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def replicated(mesh: Mesh) -> Layout:
        """Return the layout with a full copy on every rank."""
        return Layout((REPLICATE,) * len(mesh.shape))

    @staticmethod
    def parse(texts: Sequence[str]) -> Layout:
        """Return the layout written as one placement per mesh axis.

        Raises ``UserError`` for an unknown placement or for incomplete turns.
        """
        turns = {axis: m for axis, m in enumerate(map(_TURN.fullmatch, texts)) if m}
        if not turns:
            return Layout(tuple(Placement.parse(text) for text in texts))
        plain = (f"S({turns[a][1]})" if a in turns else text for a, text in enumerate(texts))
        layout = Layout(tuple(map(Placement.parse, plain)))
        for dim in sorted({layout.placements[axis].dim for axis in turns}):
            axes = layout.axes_splitting(dim)
            own = {int(turns[axis][2]): axis for axis in axes if axis in turns}
            if sorted(own) != list(range(len(axes))):
                raise UserError(
                    f"placement: expected turns from 0 to {len(axes) - 1} on all axes that split "
                    f"dimension {dim}, or on none, got: {' '.join(texts)}"
                )
            layout = layout.ordered([own[turn] for turn in range(len(axes))])
        return layout

    @property
    def texts(self) -> list[str]:
        """The placements as text; inverse of :meth:`parse`."""
        texts = [str(placement) for placement in self.placements]
        for axes in self.turned:
            for turn, axis in enumerate(axes):
                texts[axis] = f"S({self.placements[axis].dim}, {turn})"
        return texts

    def ordered(self, axes: Sequence[int]) -> Layout:
        """Return this layout with one dimension split in the order of ``axes``, major first.

        ``axes`` are all the axes that split that dimension.
        """
        rest = [own for own in self.turned if own[0] not in axes]
        turned = [*rest, tuple(axes)] if list(axes) != sorted(axes) else rest
        return Layout(self.placements, tuple(sorted(turned)))

    @property
    def has_partial(self) -> bool:
        return any(placement.is_partial for placement in self.placements)

    @property
    def is_replicated(self) -> bool:
        return all(placement.is_replicate for placement in self.placements)

    def axes_of(self, placement: Placement) -> tuple[int, ...]:
        """Return the mesh axes that carry ``placement``, ascending."""
        return tuple(axis for axis, own in enumerate(self.placements) if own == placement)

    def axes_splitting(self, dim: int) -> tuple[int, ...]:
        """Return the mesh axes that split tensor dimension ``dim``, major first."""
        for axes in self.turned:
            if self.placements[axes[0]].dim == dim:
                return axes
        placed = enumerate(self.placements)
        return tuple(axis for axis, own in placed if own.kind == "S" and own.dim == dim)

    def pieces(self, dim: int, mesh: Mesh) -> int:
        """Return the number of pieces that dimension ``dim`` is split into."""
        return mesh.extent(self.axes_splitting(dim))

    def parts(self, mesh: Mesh) -> int:
        """Return the number of parts that a tensor is split into, over all its dimensions."""
        return mesh.extent(tuple(axis for axis, own in enumerate(self.placements) if own.is_split))

    def piece(self, rank: int, mesh: Mesh) -> tuple[int, ...]:
        """Return the index of the piece on ``rank`` for each split dimension, in order."""
        dims = sorted({own.dim for own in self.placements if own.is_split})
        return tuple(mesh.linear(rank, self.axes_splitting(dim)) for dim in dims)

    def replace(self, axes: Sequence[int], placement: Placement) -> Layout:
        """Return this layout with ``placement`` on each of ``axes``.

        A dimension that further axes now split goes back to the order of the mesh.
        """
        new = [placement if axis in axes else own for axis, own in enumerate(self.placements)]
        layout = Layout(tuple(new))
        for own in self.turned:
            dim = self.placements[own[0]].dim
            kept = [axis for axis in own if axis not in axes]
            if kept and len(layout.axes_splitting(dim)) == len(kept):
                layout = layout.ordered(kept)
        return layout

    def moved(self, axes: Sequence[int], placement: Placement) -> Layout:
        """Return this layout with ``placement`` on ``axes``, minor to the axes already there.

        For a split, ``axes`` become the minor axes of the dimension, in the order given.
        """
        layout = self.replace(axes, placement)
        if not placement.is_split:
            return layout
        major = [axis for axis in self.axes_splitting(placement.dim) if axis not in axes]
        return layout.ordered([*major, *axes])

    def fits(self, shape: Sequence[Size], mesh: Mesh) -> bool:
        """Return whether every split dimension exists and can be split at every possible size."""
        return self.misfit(shape, mesh) is None

    def misfit(self, shape: Sequence[Size], mesh: Mesh) -> str | None:
        """Return the reason why a tensor of ``shape`` cannot have this layout, or ``None``.

        The last parts of a dimension that one axis splits may be padded, within the limit of
        ``can_pad``. The text has the form ``expected X, got: Y``.
        """
        if not mesh.is_grouped(self.placements):
            most = f"at most {mesh.most_groups} groups of neighbouring mesh axes that differ"
            return f"expected {most}, got: {self}"
        if self.turned and mesh.is_deep:
            return f"expected axes in the order of the mesh, which is deep, got: {self}"
        for dim in sorted({p.dim for p in self.placements if p.is_split}):
            if dim >= len(shape):
                return f"expected a dimension below {len(shape)}, got: S({dim})"
            size, pieces = shape[dim], self.pieces(dim, mesh)
            if size is None:
                return f"expected dimension {dim} whole or fixed by --dim, got: a symbolic size"
            if isinstance(size, Open) and divisor_of(size) % pieces:
                return f"expected dimension {dim} whole or of multiples of {pieces}, got: {size}"
            alone = len(self.axes_splitting(dim)) == 1
            if isinstance(size, int) and size % pieces and not (alone and can_pad(size, pieces)):
                return f"expected dimension {dim} to divide by {pieces}, got: {size}"
        return None

    @overload
    def local_shape(self, shape: Sequence[int | None], mesh: Mesh) -> tuple[int | None, ...]: ...
    @overload
    def local_shape(self, shape: Sequence[Size], mesh: Mesh) -> Sizes: ...
    def local_shape(self, shape: Sequence[Size], mesh: Mesh) -> Sizes:
        """Return the shape of one rank's part, with padding; ``None`` marks a symbolic size."""
        local = list(shape)
        for extent, own in zip(mesh.shape, self.placements, strict=True):
            if own.kind == "S" and own.dim < len(local):
                local[own.dim] = _part(local[own.dim], extent)
        return tuple(local)

    def local_slices(self, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """Return the slices of the global tensor of ``shape`` that ``rank`` has, without padding.

        Parts at the end of a dimension may be shorter or empty.
        """
        slices = []
        for dim, size in enumerate(shape):
            axes = self.axes_splitting(dim)
            step = part_of(size, mesh.extent(axes))
            start = min(step * mesh.linear(rank, axes), size)
            slices.append(slice(start, min(start + step, size)))
        return tuple(slices)

    def padded_dims(self, shape: Sequence[Size], mesh: Mesh) -> tuple[int, ...]:
        """Return the dimensions of a tensor of ``shape`` with padding in their last parts."""
        sizes = enumerate(shape)
        return tuple(d for d, n in sizes if isinstance(n, int) and n % self.pieces(d, mesh))

    def __str__(self) -> str:
        return "[" + ", ".join(self.texts) + "]"

    def __hash__(self) -> int:  # cached: called very often while tables are built
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.placements, self.turned)) if self.turned else hash(self.placements)


def reordered(layout: Layout, mesh: Mesh) -> Iterator[Layout]:
    """Yield the layouts that differ from ``layout`` only in the order of axes.

    Yields none on a deep mesh, where axes form groups of neighbours anyway.
    """
    if mesh.is_deep:
        return
    dims = sorted({own.dim for own in layout.placements if own.is_split})
    orders = (itertools.permutations(layout.axes_splitting(dim)) for dim in dims)
    for chosen in itertools.product(*orders):
        found = reduce(Layout.ordered, chosen, layout)
        if found != layout:
            yield found


def _part(size: Size, pieces: int) -> Size:
    if isinstance(size, Open):
        return size.part(pieces)
    return None if size is None else part_of(size, pieces)
