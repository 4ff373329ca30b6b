"""Sizes of dimensions: fixed, open with an assumed range, or symbolic."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tensoropt.runtime.layout.division import Units
from tensoropt.runtime.layout.padding import can_pad, part_of

__all__ = [
    "Open",
    "Size",
    "Sizes",
    "divisor_of",
    "end_of",
    "ever_pads",
    "is_power_of_two",
    "is_worth_padding",
    "is_worth_units",
    "largest",
    "mean_of",
    "pads_little",
    "read_open",
]

_LITTLE = 32
"""Padding of at most 1/32 of the points of a dimension counts as little."""

_UNITS = 5
"""From this number of units on, one may be padding on a power of two of ranks."""

_OPEN = re.compile(r"(?:(.*) )?mean=(\d{1,18}) end=(\d{1,18}) step=(\d{1,18})")


@dataclass(frozen=True)
class Open:
    """The assumed sizes of a symbolic dimension with a given range.

    Times are computed at ``mean``, memory at ``end``. ``step`` divides every size in the range.
    Dimensions with the same ``name`` have the same size; a dimension without a name equals no
    other.
    """

    mean: int
    end: int
    step: int = 1
    name: str = ""

    @property
    def can_split(self) -> bool:
        """True if the sizes have a common divisor and a name identifies equal dimensions."""
        return bool(self.name) and self.step > 1

    def part(self, pieces: int) -> Open:
        """Return the size of one of ``pieces`` equal parts; ``pieces`` divides ``step``."""
        if pieces == 1:
            return self
        name = self.name and f"{self.name}/{pieces}"
        return Open(self.mean // pieces, self.end // pieces, self.step // pieces, name)

    def nameless(self) -> Open:
        """Return the same range without a name, so that it equals no other dimension."""
        return replace(self, name="")

    def __str__(self) -> str:
        figures = f"mean={self.mean} end={self.end} step={self.step}"
        return f"{self.name} {figures}" if self.name else figures


Size = int | Open | None
"""``None`` is a symbolic dimension without a range; it counts as 1."""

Sizes = tuple[Size, ...]


def read_open(text: str) -> Open | None:
    """Return the :class:`Open` that ``text`` is the ``str`` of, or ``None``."""
    found = _OPEN.fullmatch(text)
    if found is None or int(found[4]) < 1:
        return None
    return Open(int(found[2]), int(found[3]), int(found[4]), found[1] or "")


def mean_of(sizes: Iterable[Size]) -> int:
    """Return the number of elements that times are computed with."""
    return math.prod(size.mean if isinstance(size, Open) else _size_or_one(size) for size in sizes)


def end_of(sizes: Iterable[Size]) -> int:
    """Return the number of elements that memory is computed with."""
    return math.prod(size.end if isinstance(size, Open) else _size_or_one(size) for size in sizes)


def is_worth_padding(size: int, pieces: int, axes: int, samples: Collection[int]) -> bool:
    """Return whether the search offers the padded split of ``size`` into ``pieces`` by ``axes``.

    If ``pieces`` is a power of two, most dimensions divide, and others are offered only with little
    padding: images of 7 x 7 pixels on 64 devices would otherwise multiply the size of the tables.
    So are all dimensions that several axes split. Batch sizes (``samples``) are exempt, because
    splitting the batch has no substitute.
    """
    if not can_pad(size, pieces):
        return False
    has_substitute = axes > 1 or is_power_of_two(pieces)
    return not has_substitute or pads_little(size, pieces) or size in samples


def is_worth_units(units: Units, extents: Sequence[int]) -> bool:
    """Return whether parts have whole units if axes do not divide the ``units`` of all blocks.

    Axes of the given ``extents`` split the dimension, major first. If the first axes have a rank
    for each unit of a block, it has copies along the others, but not all blocks may. Padding needs
    the same number of units in all blocks, except single ones: else query heads would not meet
    their key heads.
    """
    if not units:
        return False
    pieces = math.prod(extents)
    copied = {math.prod(extents[:count]) for count in range(len(extents))} - {pieces}
    rest = [own for own in units if own not in copied]
    padded = [own for own in rest if own % pieces]
    if not rest or (not padded and len(rest) == len(units)):
        return False
    return not padded or (len({*units} - {1}) == 1 and _pads_few(padded[0], pieces))


def _pads_few(units: int, pieces: int) -> bool:
    """Return whether ``pieces`` of rounded up ``units`` have little enough padding.

    On a power of two of ranks, one of a few units may be padding: of 5 heads on 2.
    """
    if not can_pad(units, pieces):
        return False
    padding = part_of(units, pieces) * pieces - units
    little = max(units // _LITTLE, min(1, units // _UNITS))
    return padding <= little or not is_power_of_two(pieces)


def pads_little(size: int, pieces: int) -> bool:
    """Return whether ``pieces`` parts of ``size`` have little padding or none."""
    return part_of(size, pieces) * pieces - size <= size // _LITTLE


def is_power_of_two(number: int) -> bool:
    """Return whether ``number``, at least 1, is a power of two."""
    return number & (number - 1) == 0


def ever_pads(size: Size) -> bool:
    """Return whether a dimension of ``size`` may be padded for some number of parts."""
    return isinstance(size, int) and can_pad(size, size + 1)  # a padding of one point, the least


def divisor_of(size: Size) -> int:
    """Return a number that divides every possible value of ``size``."""
    if isinstance(size, Open):
        return size.step if size.can_split else 1
    return _size_or_one(size)


def largest(sizes: Iterable[Size]) -> Size:
    """Return the largest fixed or open size, compared by mean; ``None`` if all are symbolic."""
    size = max((n for n in sizes if n is not None), key=lambda n: mean_of([n]), default=None)
    return size.nameless() if isinstance(size, Open) else size


def _size_or_one(size: int | None) -> int:
    return 1 if size is None else size
