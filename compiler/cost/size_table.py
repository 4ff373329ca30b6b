"""Measured times of a family of operators by their sizes, relative to the roofline.

A roofline misses the reach of kernels: tiles at the edge of a matrix, the last wave over the
multiprocessors, thin operands that do not fill the memory's queues. A table has the factor between
the measured time and the roofline on a grid of sizes. Between its knots the logarithm of the factor
is linear in the logarithm of each size; beyond them the nearest knot counts.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table
from tensoropt.compiler.support.errors import UserError

__all__ = ["SizeTable", "read_size_table"]


@dataclass(frozen=True)
class SizeTable:
    """Factors over the roofline, by the sizes of an operator.

    ``knots`` has the ascending sizes of each axis of the grid, and ``factors`` a factor per point
    of the grid, the last axis fastest.
    """

    knots: tuple[tuple[float, ...], ...]
    factors: tuple[float, ...]

    def factor(self, sizes: Sequence[float]) -> float:
        """Return the factor at ``sizes``, one per axis; exponential in the axes alone."""
        places = [_weights_of(size, own) for size, own in zip(sizes, self.knots, strict=True)]
        total = 0.0
        for corner in itertools.product(*places):
            at, weight = 0, 1.0
            for (index, part), own in zip(corner, self.knots, strict=True):
                at, weight = at * len(own) + index, weight * part
            total += weight * math.log(self.factors[at])
        return math.exp(total)


def _weights_of(size: float, knots: Sequence[float]) -> list[tuple[int, float]]:
    """Return the knots around a size, each with its weight; one knot at and beyond the ends."""
    if size <= knots[0]:
        return [(0, 1.0)]
    if size >= knots[-1]:
        return [(len(knots) - 1, 1.0)]
    right = bisect_right(knots, size)
    low, high = knots[right - 1], knots[right]
    part = math.log(size / low) / math.log(high / low)
    return [(right - 1, 1.0 - part), (right, part)] if part else [(right - 1, 1.0)]


def read_size_table(table: Table, axes: Sequence[str]) -> SizeTable:
    """Return a table of the file: its knots under the names of ``axes``, and ``factors``.

    Raises :class:`UserError` if knots do not ascend, or if the number of factors is another one.
    """
    knots = tuple(table.row(axis) for axis in axes)
    for axis, own in zip(axes, knots, strict=True):
        if any(low >= high for low, high in itertools.pairwise(own)):
            raise UserError(f"{table.where(axis)}: expected ascending sizes, got: {list(own)}")
    factors, points = table.row("factors"), math.prod(map(len, knots))
    if len(factors) != points:
        raise UserError(
            f"{table.where('factors')}: expected a factor per point of the grid, {points}, "
            f"got: {len(factors)}"
        )
    return SizeTable(knots, factors)
