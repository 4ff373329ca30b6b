"""A mesh: the ranks of a job arranged as a grid, row-major."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tensoropt.compiler.errors import UserError

__all__ = ["Mesh", "factorisations", "parse_mesh"]


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

    def linear(self, rank: int, axes: tuple[int, ...]) -> int:
        """Return the row-major position of ``rank`` within its group over ``axes``."""
        coordinates, position = self.coordinates(rank), 0
        for axis in axes:
            position = position * self.shape[axis] + coordinates[axis]
        return position

    def group(self, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks that differ from ``rank`` only along ``axes``, row-major over them."""
        own = self.coordinates(rank)
        ranges = [range(n) if a in axes else (own[a],) for a, n in enumerate(self.shape)]
        return tuple(self.rank(position) for position in itertools.product(*ranges))

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


def factorisations(devices: int) -> Iterator[Mesh]:
    """Yield every mesh of ``devices`` ranks with axes above 1, in every order; ``1`` alone for one.

    The order of the axes matters where links differ: the minor axes sit within a node.
    """
    if devices == 1:
        yield Mesh((1,))
        return
    for shape in _ordered_factors(devices):
        yield Mesh(shape)


def _ordered_factors(n: int) -> Iterator[tuple[int, ...]]:
    yield (n,)
    for first in range(2, n):
        if n % first == 0:
            for rest in _ordered_factors(n // first):
                yield (first, *rest)


def parse_mesh(text: str, devices: int | None = None) -> Mesh:
    """Return the mesh written as ``2x4``; with ``devices`` given, its size must agree."""
    parts = text.lower().split("x")
    if not all(re.fullmatch("0*[1-9][0-9]{0,8}", part) for part in parts):
        raise UserError(f"--mesh: expected positive sizes such as 2x4, got: '{text}'")
    mesh = Mesh(tuple(int(part) for part in parts))
    if devices is not None and mesh.size != devices:
        valid = ", ".join(str(m) for m in factorisations(devices))
        raise UserError(
            f"--mesh: {mesh} has {mesh.size} ranks, expected {devices} as in {valid}, got: '{text}'"
        )
    return mesh
