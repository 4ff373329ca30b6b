"""Layouts: the distribution of a tensor over the ranks, as one placement per mesh axis."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, TypeVar, cast, get_args

from tensoropt.runtime.layout.division import Blocks, Divisible, Division, Units, part_size
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.errors import UserError

__all__ = [
    "PARTIAL_SUM",
    "REDUCTIONS",
    "REPLICATE",
    "SAME_SPLITS",
    "Blocks",
    "Box",
    "Layout",
    "Placement",
    "Reduction",
    "Units",
    "blocks_text",
    "partial",
    "ratio_of",
    "read_blocks",
    "read_units",
    "split",
    "units_text",
]

Reduction = Literal["sum", "max", "min"]

REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)

_PLACEMENT = re.compile(
    r"R|S\((0|[1-9][0-9]{0,8})(?:, (0|[1-9][0-9]?))?"
    r"(?: of ([1-9][0-9]{0,2}|[1-9][0-9]{0,8}(?:\+[1-9][0-9]{0,8})+))?"
    r"(?: in ([1-9][0-9]{0,8}(?:\+[1-9][0-9]{0,8})*))?\)"
    r"|P\((sum|max|min)\)"
)

SAME_SPLITS = "the same blocks and units"
"""The requirement for axes that split one dimension."""

_Size = TypeVar("_Size", bound=int | Divisible | None)


@dataclass(frozen=True)
class Placement:
    """The distribution of a tensor along one mesh axis.

    ``S(d)`` splits tensor dimension ``d``, ``R`` replicates, ``P(sum|max|min)`` leaves on every
    rank a partial result that the reduction over the axis completes (AutoDDL, section 4).
    ``S(d of 3)`` and ``S(d of 4+1+1)`` split each of three blocks of the dimension: every rank has
    its piece of each, in order. The numbers are the ratio of the sizes of the blocks.
    ``S(d in 12)`` splits the dimension between twelve equal units: the parts of all ranks have as
    many units, rounded up. ``S(d of 3 in 12)`` does so in each block. In ``S(d of 8+1+1 in 8+1+1)``
    the blocks of one unit are whole on every rank (:class:`Division`).
    """

    kind: Literal["S", "R", "P"]
    dim: int = -1
    reduction: Reduction | None = None
    blocks: Blocks = ()
    units: Units = ()

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
        if match is None or match[2] is not None:
            raise UserError(f"placement: expected R, S(<dim>) or P(sum|max|min), got: '{text}'")
        return _placement(match)

    @property
    def plain(self) -> Placement:
        """The same placement without blocks and units."""
        return split(self.dim) if self.blocks or self.units else self

    def text(self, turn: int | None = None) -> str:
        """Return the placement as text, with the axis's ``turn`` if it has one."""
        if self.kind != "S":
            return "R" if self.kind == "R" else f"P({self.reduction})"
        turned = "" if turn is None else f", {turn}"
        blocks = f" of {blocks_text(self.blocks)}" if self.blocks else ""
        units = f" in {units_text(self.units)}" if self.units else ""
        return f"S({self.dim}{turned}{blocks}{units})"

    def __str__(self) -> str:
        return self.text()

    def __hash__(self) -> int:  # hashes only integers, so it is the same in every process
        if self.blocks or self.units:
            return hash((self.dim, self.blocks, self.units))
        return self.dim if self.kind == "S" else _HASHES[self.kind, self.reduction]


_HASHES: dict[tuple[str, Reduction | None], int] = {
    ("R", None): -3,
    ("P", "sum"): -4,
    ("P", "max"): -5,
    ("P", "min"): -6,
}


@cache
def split(dim: int, blocks: Blocks = (), units: Units = ()) -> Placement:
    """Return ``S(dim)``, or ``S(dim of blocks in units)``; ``blocks`` are in lowest terms."""
    return Placement("S", dim=dim, blocks=blocks, units=units)


def ratio_of(sizes: Sequence[int]) -> Blocks:
    """Return the blocks of these sizes, in lowest terms; none for a single block."""
    if len(sizes) < 2:
        return ()
    common = math.gcd(*sizes)
    return tuple(size // common for size in sizes)


def blocks_text(blocks: Blocks) -> str:
    """Return blocks as text: their number if they are equal, else ``4+1+1``."""
    return str(len(blocks)) if set(blocks) == {1} else "+".join(map(str, blocks))


def read_blocks(text: str) -> Blocks:
    """Return the blocks written as ``text``; inverse of :func:`blocks_text`."""
    sizes = [int(size) for size in text.split("+")]
    return ratio_of(sizes if len(sizes) > 1 else [1] * sizes[0])


def units_text(units: Units) -> str:
    """Return units as text: their number if all blocks have the same, else ``8+1+1``."""
    return str(units[0]) if len(set(units)) == 1 else "+".join(map(str, units))


def read_units(text: str, blocks: Blocks) -> Units:
    """Return the units of ``blocks`` written as ``text``; inverse of :func:`units_text`.

    Raises `UserError` for another number of units than blocks.
    """
    units, count = tuple(map(int, text.split("+"))), len(blocks) or 1
    if len(units) not in (1, count):
        raise UserError(f"expected units of {count} blocks, got: '{text}'")
    return units * count if len(units) == 1 else units


def _placement(match: re.Match[str]) -> Placement:
    """Return the placement of a match of the grammar, without its turn."""
    if match[1] is not None:
        blocks = read_blocks(match[3]) if match[3] else ()
        try:
            units = read_units(match[4], blocks) if match[4] else ()
        except UserError as error:
            raise UserError(f"placement: {error}") from None
        return split(int(match[1]), blocks, units)
    return partial(cast("Reduction", match[5])) if match[5] else REPLICATE


@cache
def partial(reduction: Reduction) -> Placement:
    """Return ``P(reduction)``."""
    return Placement("P", reduction=reduction)


REPLICATE = Placement("R")
PARTIAL_SUM = partial("sum")


@dataclass(frozen=True)
class Box:
    """A box that a rank has: its slices of the ``whole`` tensor, and of the rank's ``part``."""

    whole: tuple[slice, ...]
    part: tuple[slice, ...]


@dataclass(frozen=True)
class Layout:
    """One placement per mesh axis; several axes on one dimension split it major to minor.

    They agree about its blocks and units.

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

        Raises ``UserError`` for an unknown placement, for incomplete turns, or for axes that split
        one dimension in different blocks or units.
        """
        matches = enumerate(map(_PLACEMENT.fullmatch, texts))
        turns = {axis: match for axis, match in matches if match and match[2] is not None}
        read = (
            _placement(turns[axis]) if axis in turns else Placement.parse(text)
            for axis, text in enumerate(texts)
        )
        layout = Layout(tuple(read))
        if layout.mixes_splits:
            raise UserError(
                f"placement: expected {SAME_SPLITS} on all axes that split one dimension, "
                f"got: {' '.join(texts)}"
            )
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
                texts[axis] = self.placements[axis].text(turn)
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
    def is_mixed(self) -> bool:
        """True if the layout is partial by two different reductions.

        The tensor is then ambiguous: its value depends on the order of the reductions.
        """
        return len({own.reduction for own in self.placements if own.is_partial}) > 1

    @property
    def mixes_splits(self) -> bool:
        """True if axes split one dimension in different blocks or units, which no layout may."""
        splits = {own for own in self.placements if own.is_split}
        return len(splits) > len({own.dim for own in splits})

    @property
    def has_blocks(self) -> bool:
        return any(placement.blocks for placement in self.placements)

    @property
    def has_units(self) -> bool:
        return any(placement.units for placement in self.placements)

    @property
    def is_replicated(self) -> bool:
        return all(placement.is_replicate for placement in self.placements)

    def split_of(self, dim: int) -> Placement | None:
        """Return the placement that splits dimension ``dim``, ``None`` if it is whole."""
        return next((own for own in self.placements if own.dim == dim), None)

    def blocks(self, dim: int) -> Blocks:
        """Return the blocks of dimension ``dim``; none if it is whole or split as one block."""
        own = self.split_of(dim)
        return () if own is None else own.blocks

    def units(self, dim: int) -> Units:
        """Return the units of each block of dimension ``dim``; none if parts have any points."""
        own = self.split_of(dim)
        return () if own is None else own.units

    def with_split(self, wanted: Placement) -> Layout:
        """Return this layout with the dimension of ``wanted``, if it is split, split like it."""
        new = (wanted if own.dim == wanted.dim else own for own in self.placements)
        return Layout(tuple(new), self.turned)

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

    def division(self, dim: int, size: int, mesh: Mesh) -> Division:
        """Return the division of dimension ``dim`` of ``size``."""
        return Division(size, self.pieces(dim, mesh), self.blocks(dim), self.units(dim))

    def can_split(self, dim: int, size: int, mesh: Mesh) -> bool:
        """Return whether dimension ``dim`` of ``size`` splits into parts of the same size.

        See :attr:`Division.fits`.
        """
        return self.division(dim, size, mesh).fits

    def local_shape(self, shape: Sequence[_Size], mesh: Mesh) -> tuple[_Size, ...]:
        """Return the shape of one rank's part, with padding; ``None`` marks a symbolic size."""
        local: list[Any] = list(shape)
        for extent, own in zip(mesh.shape, self.placements, strict=True):
            if own.kind == "S" and own.dim < len(local):
                if own.units:
                    pieces = self.pieces(own.dim, mesh)
                    local[own.dim] = part_size(shape[own.dim], pieces, own.blocks, own.units)
                else:
                    local[own.dim] = part_size(local[own.dim], extent)
        return tuple(local)

    def local_boxes(
        self, shape: Sequence[int], mesh: Mesh, rank: int, *, once: bool = False
    ) -> tuple[Box, ...]:
        """Return the boxes of the global tensor of ``shape`` that ``rank`` has, without padding.

        There is one for each combination of the runs of the dimensions: a dimension in blocks has a
        run in each block, all others have one. Boxes at the end of a dimension may be smaller or
        empty. With ``once``, units that several ranks have are empty except on the first.
        """
        placed = []
        for dim, size in enumerate(shape):
            own = self.division(dim, size, mesh)
            runs = own.runs(mesh.linear(rank, self.axes_splitting(dim)), once=once)
            parts = zip(runs, own.starts, strict=True)
            placed.append([(r, slice(at, at + r.stop - r.start)) for r, at in parts])
        return tuple(
            Box(tuple(whole for whole, _ in own), tuple(part for _, part in own))
            for own in itertools.product(*placed)
        )

    def padded_dims(self, shape: Sequence[object], mesh: Mesh) -> tuple[int, ...]:
        """Return the dimensions of a tensor of ``shape`` with padding or copies in their parts."""
        sizes = enumerate(shape)
        return tuple(d for d, n in sizes if isinstance(n, int) and self._pads(d, n, mesh))

    def _pads(self, dim: int, size: int, mesh: Mesh) -> bool:
        if not self.units(dim):
            return size % self.pieces(dim, mesh) != 0
        own = self.division(dim, size, mesh)
        return not (own.fits and own.is_even)

    def __str__(self) -> str:
        return "[" + ", ".join(self.texts) + "]"

    def __hash__(self) -> int:  # cached: called very often while tables are built
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.placements, self.turned)) if self.turned else hash(self.placements)
