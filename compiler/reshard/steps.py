"""The steps that take a tensor from one layout to another, each one collective or one local op."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tensoropt.compiler.layout.layout import (
    REPLICATE,
    Layout,
    Placement,
    Reduction,
    partial,
    split,
)
from tensoropt.compiler.layout.mesh import Mesh, grouped

__all__ = ["ReshardStep", "StepKind", "is_mixed", "layouts_of_rank", "steps_from"]

StepKind = Literal[
    "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "all_slice", "partialize"
]

_KINDS: dict[tuple[str, str], StepKind] = {
    ("S", "R"): "all_gather",
    ("P", "R"): "all_reduce",
    ("P", "S"): "reduce_scatter",
    ("S", "S"): "all_to_all",
    ("R", "S"): "all_slice",
    ("R", "P"): "partialize",
}


@dataclass(frozen=True)
class ReshardStep:
    """One move of a tensor: ``axes`` change from one placement, equal on all, to another.

    Groups are row-major over ``axes`` (ascending). What each kind does to a rank's part, ``c``
    being its position in its group of ``p``:

    - ``all_gather``: concatenate the group's parts along ``dim``.
    - ``all_reduce``: combine the group's parts by ``reduction``.
    - ``reduce_scatter``: combine them by ``reduction`` and keep piece ``c`` of ``p`` along ``dim``.
    - ``all_to_all``: cut into ``p`` pieces along ``other_dim``, send piece ``k`` to position ``k``,
      concatenate what arrives along ``dim``: ``S(dim)`` becomes ``S(other_dim)``.
    - ``all_slice``: keep piece ``c`` of ``p`` along ``dim``; nothing is sent.
    - ``partialize``: for ``sum`` zeros everywhere but at ``c = 0``; for ``max`` and ``min``, where
      equal parts combine to themselves, nothing at all.
    """

    kind: StepKind
    axes: tuple[int, ...]
    src: Layout
    dst: Layout
    dim: int | None = None
    other_dim: int | None = None
    reduction: Reduction | None = None

    def __str__(self) -> str:
        return f"{self.kind} {list(self.axes)}: {self.src} -> {self.dst}"


def is_mixed(layout: Layout) -> bool:
    """Say whether the layout is partial by two reductions at once.

    Such a tensor has no meaning: the result depends on which reduction is done first.
    """
    return len({p.reduction for p in layout.placements if p.is_partial}) > 1


def layouts_of_rank(rank: int, mesh: Mesh, reductions: Sequence[Reduction]) -> list[Layout]:
    """Return every layout of a tensor with ``rank`` dimensions, however large they are.

    Axes of one rank always replicate. Mixed reductions are left out.
    """
    every = [REPLICATE, *map(split, range(rank)), *map(partial, reductions)]
    per_axis = [every if extent > 1 else [REPLICATE] for extent in mesh.shape]
    layouts = map(Layout, grouped(mesh, per_axis))
    return [layout for layout in layouts if not is_mixed(layout)]


def steps_from(
    src: Layout, rank: int, mesh: Mesh, reductions: Sequence[Reduction]
) -> Iterator[ReshardStep]:
    """Yield every step from ``src``, whether or not its result divides a particular shape.

    All axes of a step change together, as one collective over the product of their ranks.
    """
    for placement in dict.fromkeys(src.placements):
        movable = [axis for axis in src.axes_of(placement) if mesh.shape[axis] > 1]
        for axes in _subsets(movable):
            if placement.is_split and not _is_minor(src, placement.dim, axes):
                continue
            for target in _targets(placement, rank, reductions):
                step = _step(src, axes, placement, target)
                if step is not None:
                    yield step


def _subsets(axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _targets(before: Placement, rank: int, reductions: Sequence[Reduction]) -> list[Placement]:
    """Return the placements that one step reaches from ``before``."""
    splits = [split(dim) for dim in range(rank) if dim != before.dim]
    if before.is_replicate:
        return [*splits, *map(partial, reductions)]
    return [REPLICATE, *splits]


def _step(
    src: Layout, axes: tuple[int, ...], before: Placement, after: Placement
) -> ReshardStep | None:
    dst = src.replace(axes, after)
    if is_mixed(dst) or (after.is_split and not _is_minor(dst, after.dim, axes)):
        return None
    dims = [p.dim for p in (before, after) if p.is_split]
    return ReshardStep(
        kind=_KINDS[before.kind, after.kind],
        axes=axes,
        src=src,
        dst=dst,
        dim=dims[0] if dims else None,
        other_dim=dims[1] if len(dims) > 1 else None,
        reduction=before.reduction or after.reduction,
    )


def _is_minor(layout: Layout, dim: int, axes: tuple[int, ...]) -> bool:
    """Say whether ``axes`` are the minor-most of those that split ``dim``.

    Only then are the pieces of a group neighbours, in group order, in the tensor.
    """
    after = enumerate(layout.placements[axes[0] + 1 :], axes[0] + 1)
    return not any(own.kind == "S" and own.dim == dim and axis not in axes for axis, own in after)
