"""Sizes of dimensions: one that is known, one that is assumed of an open dimension, or none."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

__all__ = [
    "Open",
    "Size",
    "Sizes",
    "can_pad",
    "divisor_of",
    "end_of",
    "ever_pads",
    "is_power_of_two",
    "is_worth_padding",
    "largest",
    "mean_of",
    "pads_little",
    "part_of",
    "read_open",
]

_LITTLE = 32
"""Padding is little where it is at most one in so many points of a dimension."""

_PADDING = 3
"""A dimension is padded by at most one in so many of its points: a quarter of all parts together,
so that parts on n ranks are three quarters as good as n equal ones, or better."""

_OPEN = re.compile(r"(?:(.*) )?mean=(\d{1,18}) end=(\d{1,18}) step=(\d{1,18})")


@dataclass(frozen=True)
class Open:
    """What is assumed of a symbolic dimension whose sizes were given as a range.

    Times are those of its ``mean``, memory is that of its ``end``. ``step`` divides every size that
    it may have. Dimensions of one ``name`` are of one size; one without a name is equal to none.
    """

    mean: int
    end: int
    step: int = 1
    name: str = ""

    @property
    def can_split(self) -> bool:
        """Whether all of its sizes have a common divisor, and others are known to be equal."""
        return bool(self.name) and self.step > 1

    def part(self, pieces: int) -> Open:
        """Return one of so many equal pieces, which divide ``step``."""
        if pieces == 1:
            return self
        name = self.name and f"{self.name}/{pieces}"
        return Open(self.mean // pieces, self.end // pieces, self.step // pieces, name)

    def nameless(self) -> Open:
        """Return the same sizes of a dimension that is equal to no other."""
        return replace(self, name="")

    def __str__(self) -> str:
        figures = f"mean={self.mean} end={self.end} step={self.step}"
        return f"{self.name} {figures}" if self.name else figures


Size = int | Open | None
"""``None`` is a symbolic dimension of which nothing is assumed: it counts as 1."""

Sizes = tuple[Size, ...]


def read_open(text: str) -> Open | None:
    """Return what ``str`` of an :class:`Open` wrote, ``None`` where it is something else."""
    found = _OPEN.fullmatch(text)
    if found is None or int(found[4]) < 1:
        return None
    return Open(int(found[2]), int(found[3]), int(found[4]), found[1] or "")


def mean_of(sizes: Iterable[Size]) -> int:
    """Return the elements that times are of."""
    return math.prod(size.mean if isinstance(size, Open) else _known(size) for size in sizes)


def end_of(sizes: Iterable[Size]) -> int:
    """Return the elements that memory is of."""
    return math.prod(size.end if isinstance(size, Open) else _known(size) for size in sizes)


def part_of(size: int, pieces: int) -> int:
    """Return the size of each of so many equal parts, of which the last ones may be padded."""
    return -(-size // pieces)


def can_pad(size: int, pieces: int) -> bool:
    """Say whether parts of ``size``, which ``pieces`` do not divide, are worth their padding.

    Some may be all padding: of 6 on 4 parts are 2, and the last has none of them."""
    return part_of(size, pieces) * pieces - size <= size // _PADDING


def is_worth_padding(size: int, pieces: int, samples: Collection[int]) -> bool:
    """Say whether a search offers parts of ``size``, which ``pieces`` do not divide.

    Where ``pieces`` is a power of two, most of a model divides, and what does not is offered with
    little padding alone: images of 7 x 7 pixels on 64 devices would make tables many times as
    large. But not the numbers of ``samples`` that a model is fed: nobody else divides a batch.
    """
    if not can_pad(size, pieces):
        return False
    return pads_little(size, pieces) or size in samples or not is_power_of_two(pieces)


def pads_little(size: int, pieces: int) -> bool:
    """Say whether ``pieces`` parts of ``size`` have little padding, or none."""
    return part_of(size, pieces) * pieces - size <= size // _LITTLE


def is_power_of_two(number: int) -> bool:
    """Say whether a number from 1 on is a power of two."""
    return number & (number - 1) == 0


def ever_pads(size: Size) -> bool:
    """Say whether a dimension of ``size`` may have padding for some number of parts."""
    return isinstance(size, int) and size >= _PADDING


def divisor_of(size: Size) -> int:
    """Return a number that divides what the size may be."""
    if isinstance(size, Open):
        return size.step if size.can_split else 1
    return _known(size)


def largest(sizes: Iterable[Size]) -> Size:
    """Return the largest of those known or assumed, by their means; ``None`` if there is none."""
    size = max((n for n in sizes if n is not None), key=lambda n: mean_of([n]), default=None)
    return size.nameless() if isinstance(size, Open) else size


def _known(size: int | None) -> int:
    return 1 if size is None else size
