"""Meshes: the ranks of a job arranged as a row-major grid."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tensoropt.compiler.support.errors import UserError

__all__ = ["AXIS_NAMES", "Mesh", "axis_name", "factorisations", "grouped", "parse_mesh"]

_T = TypeVar("_T")

AXIS_NAMES = "xyz"
"""Names of the first axes."""

SHALLOW = 3
"""Largest number of axes above 1 with independent placements."""
DEEP_GROUPS = 2
"""Number of groups on deeper meshes; the neighbouring axes of a group have the same placement."""


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

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes: x, y and z, then a3, a4, ..."""
        return tuple(map(axis_name, self.axes))

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

    @cached_property
    def most_groups(self) -> int:
        """Maximum number of groups of neighbouring axes with different placements.

        Up to three axes are independent. A deeper mesh would have far too many layouts
        (5 placements on 6 axes: 15,625), so each op views the ranks as a two-dimensional grid of
        its own choice, such as 2x32 or 16x4 (docs/decisions/0022).
        """
        axes = sum(extent > 1 for extent in self.shape)
        return DEEP_GROUPS if self.is_deep else axes

    @cached_property
    def is_deep(self) -> bool:
        """True if the mesh has more than three axes above 1."""
        return sum(extent > 1 for extent in self.shape) > SHALLOW

    def layouts(self, placements: int) -> int:
        """Return the number of layouts of a tensor when each axis has ``placements`` choices."""
        axes = sum(extent > 1 for extent in self.shape)
        return (
            sum(
                math.comb(axes - 1, others) * placements * (placements - 1) ** others
                for others in range(self.most_groups)
            )
            if axes
            else 1
        )

    def is_grouped(self, per_axis: Sequence[object]) -> bool:
        """Return whether ``per_axis`` has at most ``most_groups`` runs of equal values.

        Axes of extent 1 are ignored.
        """
        done = (own for extent, own in zip(self.shape, per_axis, strict=True) if extent > 1)
        return sum(1 for _ in itertools.groupby(done)) <= self.most_groups

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


def axis_name(axis: int) -> str:
    """Return the name of ``axis``: x, y or z, then a3, a4, ..."""
    return AXIS_NAMES[axis] if axis < len(AXIS_NAMES) else f"a{axis}"


def grouped(mesh: Mesh, per_axis: Sequence[Sequence[_T]]) -> Iterator[tuple[_T, ...]]:
    """Yield the combinations of ``per_axis`` that form at most ``most_groups`` groups.

    They come in the order of ``itertools.product``. Axes of extent 1 belong to no group.
    """

    def further(axis: int, groups: int, last: _T | None) -> Iterator[tuple[_T, ...]]:
        if axis == len(per_axis):
            yield ()
            return
        for own in per_axis[axis]:
            alone = mesh.shape[axis] == 1
            count = groups if alone or (groups and own == last) else groups + 1
            if count <= mesh.most_groups:
                for rest in further(axis + 1, count, last if alone else own):
                    yield (own, *rest)

    return further(0, 0, None)


def factorisations(devices: int) -> Iterator[Mesh]:
    """Yield every mesh of ``devices`` ranks with axes above 1, in every order; ``1`` for one rank.

    The order of the axes matters when links differ: the minor axes are within a node.
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
    """Return the mesh written as ``2x4``.

    Raises ``UserError`` for other text, or if the mesh does not have ``devices`` ranks.
    """
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
