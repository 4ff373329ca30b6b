"""Meshes: the ranks of a job arranged as a row-major grid."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

__all__ = ["Mesh"]


@dataclass(frozen=True)
class Mesh:
    """A grid of ranks; rank ``r`` sits at the row-major coordinates of ``r`` in ``shape``."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.shape)

    @property
    def axes(self) -> range:
        """Indices of the mesh axes, major first."""
        return range(len(self.shape))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return the position of ``rank`` along every axis."""
        position: list[int] = []
        for extent in reversed(self.shape):
            rank, coordinate = divmod(rank, extent)
            position.append(coordinate)
        return tuple(reversed(position))

    def rank(self, coordinates: tuple[int, ...]) -> int:
        """Return the rank at ``coordinates``; inverse of :meth:`coordinates`."""
        rank = 0
        for extent, coordinate in zip(self.shape, coordinates, strict=True):
            rank = rank * extent + coordinate
        return rank

    def extent(self, axes: tuple[int, ...]) -> int:
        """Return the number of ranks in a group over ``axes``."""
        return math.prod(self.shape[axis] for axis in axes)

    def extents(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of ranks along each of ``axes``."""
        return tuple(self.shape[axis] for axis in axes)

    def linear(self, rank: int, axes: tuple[int, ...]) -> int:
        """Return the position of ``rank`` within its group over ``axes``, major first."""
        coordinates, position = self.coordinates(rank), 0
        for axis in axes:
            position = position * self.shape[axis] + coordinates[axis]
        return position

    def group(self, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks that differ from ``rank`` only along ``axes``, major first."""
        found = []
        for position in itertools.product(*(range(self.shape[axis]) for axis in axes)):
            coordinates = list(self.coordinates(rank))
            for axis, own in zip(axes, position, strict=True):
                coordinates[axis] = own
            found.append(self.rank(tuple(coordinates)))
        return tuple(found)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))
