"""Meshes that the compiler plans for: factorisations, groups of axes, names and text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "AXIS_NAMES",
    "axis_name",
    "axis_names",
    "count_layouts",
    "factorisations",
    "grouped",
    "is_deep",
    "is_grouped",
    "most_groups",
    "parse_mesh",
    "wide_axes",
]

_T = TypeVar("_T")

AXIS_NAMES = "xyz"
"""Names of the first axes."""

SHALLOW = 3
"""Largest number of axes above 1 with independent placements."""
DEEP_GROUPS = 2
"""Number of groups on deeper meshes; the neighbouring axes of a group have the same placement."""

_EXAMPLES = 8
"""Most meshes that an error lists."""


def is_deep(mesh: Mesh) -> bool:
    """Return whether ``mesh`` has more than three axes above 1."""
    return wide_axes(mesh) > SHALLOW


def most_groups(mesh: Mesh) -> int:
    """Return the maximum number of groups of neighbouring axes with different placements.

    Up to three axes are independent. A deeper mesh would have far too many layouts
    (5 placements on 6 axes: 15,625), so each op views the ranks as a two-dimensional grid of
    its own choice, such as 2x32 or 16x4 (docs/decisions/0022).
    """
    axes = wide_axes(mesh)
    return DEEP_GROUPS if axes > SHALLOW else axes


def wide_axes(mesh: Mesh) -> int:
    """Return the number of axes above 1."""
    return sum(extent > 1 for extent in mesh.shape)


def count_layouts(mesh: Mesh, placements: int) -> int:
    """Return the number of layouts of a tensor when each axis has ``placements`` choices."""
    axes = wide_axes(mesh)
    if not axes:
        return 1
    return sum(
        math.comb(axes - 1, others) * placements * (placements - 1) ** others
        for others in range(most_groups(mesh))
    )


def is_grouped(mesh: Mesh, per_axis: Sequence[object]) -> bool:
    """Return whether ``per_axis`` has at most ``most_groups`` runs of equal values.

    Axes of extent 1 are ignored.
    """
    done = (own for extent, own in zip(mesh.shape, per_axis, strict=True) if extent > 1)
    return sum(1 for _ in itertools.groupby(done)) <= most_groups(mesh)


def axis_name(axis: int) -> str:
    """Return the name of ``axis``: x, y or z, then a3, a4, ..."""
    return AXIS_NAMES[axis] if axis < len(AXIS_NAMES) else f"a{axis}"


def axis_names(axes: Iterable[int]) -> tuple[str, ...]:
    """Return the names of ``axes``."""
    return tuple(map(axis_name, axes))


def grouped(mesh: Mesh, per_axis: Sequence[Sequence[_T]]) -> Iterator[tuple[_T, ...]]:
    """Yield the combinations of ``per_axis`` that form at most ``most_groups`` groups.

    They come in the order of ``itertools.product``. Axes of extent 1 belong to no group.
    """
    most = most_groups(mesh)

    def further(axis: int, groups: int, last: _T | None) -> Iterator[tuple[_T, ...]]:
        if axis == len(per_axis):
            yield ()
            return
        for own in per_axis[axis]:
            alone = mesh.shape[axis] == 1
            count = groups if alone or (groups and own == last) else groups + 1
            if count <= most:
                for rest in further(axis + 1, count, last if alone else own):
                    yield (own, *rest)

    return further(0, 0, None)


def factorisations(devices: int, most_axes: int | None = None) -> Iterator[Mesh]:
    """Yield every mesh of ``devices`` ranks with axes above 1, in every order; ``1`` for one rank.

    Meshes of more than ``most_axes`` axes are left out.
    The order of the axes matters when links differ: the minor axes are within a node.
    """
    if devices == 1:
        yield Mesh((1,))
        return
    for shape in _ordered_factors(devices):
        if most_axes is None or len(shape) <= most_axes:
            yield Mesh(shape)


def _ordered_factors(n: int) -> Iterator[tuple[int, ...]]:
    yield (n,)
    for first in range(2, n):
        if n % first == 0:
            for rest in _ordered_factors(n // first):
                yield (first, *rest)


def parse_mesh(text: str, devices: int | None = None, stages: int = 1) -> Mesh:
    """Return the mesh written as ``2x4``.

    Raises ``UserError`` for other text, or if the meshes of all ``stages`` do not have ``devices``
    ranks together.
    """
    parts = text.lower().split("x")
    if not all(re.fullmatch("0*[1-9][0-9]{0,8}", part) for part in parts):
        raise UserError(f"--mesh: expected positive sizes such as 2x4, got: '{text}'")
    mesh = Mesh(tuple(int(part) for part in parts))
    if devices is not None and mesh.size * stages != devices:
        valid = itertools.islice(factorisations(devices // stages), _EXAMPLES)
        given = f"{mesh} on {stages} stages" if stages > 1 else str(mesh)
        wanted = f" as in {', '.join(map(str, valid))}" if devices % stages == 0 else ""
        raise UserError(
            f"--mesh: {given} has {mesh.size * stages} ranks, expected {devices}{wanted}, "
            f"got: '{text}'"
        )
    return mesh
