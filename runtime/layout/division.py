"""Division of one dimension into the parts of ranks: its blocks, its units, padding and copies."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from tensoropt.runtime.layout.padding import can_pad, part_of

__all__ = ["Blocks", "Divisible", "Division", "Units", "part_size"]

Blocks = tuple[int, ...]
"""The ratio of the sizes of a dimension's blocks, in lowest terms; empty for a single block."""

Units = tuple[int, ...]
"""The number of units of each block; empty if parts may have any points."""


class Divisible(Protocol):
    """A size that stands for several numbers, such as the range of a symbolic dimension."""

    def part(self, pieces: int) -> Divisible: ...


_Size = TypeVar("_Size", bound=int | Divisible | None)


@dataclass(frozen=True)
class Division:
    """A dimension of ``size`` in ``pieces``, one per rank, with its blocks and units.

    A piece has its share of every block, in order. The share of a block without units is the same
    for all pieces. With units, a block gives each piece the same number of them, rounded up, and
    the share of the last pieces ends with padding. A block of fewer units than pieces gives each
    piece one, so that neighbouring pieces have copies of a unit.
    """

    size: int
    pieces: int
    blocks: Blocks = ()
    units: Units = ()

    @cached_property
    def fits(self) -> bool:
        """True if the blocks and the units divide the size, and padding is within its limit.

        Only a dimension of several blocks has copies.
        """
        if not self.units:
            if self.blocks:
                return self.size % (sum(self.blocks) * self.pieces) == 0
            return self.size % self.pieces == 0 or can_pad(self.size, self.pieces)
        if self.size % sum(self.blocks or (1,)):
            return False
        return all(
            size % units == 0 and (self._copies(units) > 1 or self._pads_little(units))
            for size, units in zip(self._sizes, self.units, strict=True)
        )

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """The sizes of a piece's shares of the blocks, with padding."""
        if not self.units:
            return tuple(part_of(size, self.pieces) for size in self._sizes)
        return tuple(
            size // units * part_of(units, self.pieces)
            for size, units in zip(self._sizes, self.units, strict=True)
        )

    @property
    def part(self) -> int:
        """The size of a piece, with padding."""
        return sum(self.shares)

    @property
    def is_even(self) -> bool:
        """True if there is neither padding nor a copy."""
        return self.part * self.pieces == self.size

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The place of each block's share in a piece."""
        return tuple(itertools.accumulate(self.shares[:-1], initial=0))

    def runs(self, piece: int, *, once: bool = False) -> list[slice]:
        """Return the indices that a piece has of each block, without padding.

        Runs at the end of a block may be shorter or empty. With ``once``, copies are empty except
        in the first piece that has them.
        """
        found, start = [], 0
        for number, (size, share) in enumerate(zip(self._sizes, self.shares, strict=True)):
            times = self._copies(self.units[number]) if self.units else 1
            first = min(piece // times * share, size)
            last = first if once and piece % times else min(first + share, size)
            found.append(slice(start + first, start + last))
            start += size
        return found

    def order(self) -> list[int]:
        """Return the index of each place in the pieces, in their order.

        Padding has the last index of the dimension.
        """
        return [
            index if index < run.stop else self.size - 1
            for piece in range(self.pieces)
            for run, share in zip(self.runs(piece), self.shares, strict=True)
            for index in range(run.start, run.start + share)
        ]

    def places(self) -> list[int]:
        """Return the place of each index in the pieces, in their order, that has it first."""
        found = [0] * self.size
        for piece in range(self.pieces):
            for run, start in zip(self.runs(piece, once=True), self.starts, strict=True):
                first = piece * self.part + start
                found[run] = range(first, first + run.stop - run.start)
        return found

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """The sizes of the blocks."""
        blocks = self.blocks or (1,)
        return tuple(self.size // sum(blocks) * block for block in blocks)

    def _copies(self, units: int) -> int:
        """Return the number of pieces that have each of a block's ``units``."""
        if len(self.blocks) < 2 or units >= self.pieces or self.pieces % units:
            return 1
        return self.pieces // units

    def _pads_little(self, units: int) -> bool:
        return units % self.pieces == 0 or can_pad(units, self.pieces)


def part_size(
    size: _Size, pieces: int, blocks: Blocks = (), units: Units = ()
) -> int | Divisible | None:
    """Return the size of one of ``pieces``, with padding; ``None`` marks a symbolic size."""
    if isinstance(size, int):
        return Division(size, pieces, blocks, units).part if units else part_of(size, pieces)
    return None if size is None else size.part(pieces)
