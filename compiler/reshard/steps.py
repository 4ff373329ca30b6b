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
    reordered,
    split,
)
from tensoropt.compiler.layout.mesh import Mesh, grouped
from tensoropt.compiler.layout.sizes import Size, Sizes

__all__ = [
    "Move",
    "ReshardStep",
    "StepKind",
    "is_mixed",
    "layouts_of_rank",
    "moves_of",
    "permutes",
    "steps_from",
]

StepKind = Literal[
    "all_gather",
    "all_reduce",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "all_slice",
    "partialize",
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
    """One move of a tensor: ``axes`` change from one placement, equal on all, to another, or what
    they do among each other.

    Groups are in the order of ``axes``, major first. What each kind does to a rank's part, ``c``
    being its position in its group of ``p``:

    - ``all_gather``: concatenate the group's parts along ``dim``.
    - ``all_reduce``: combine the group's parts by ``reduction``.
    - ``reduce_scatter``: combine them by ``reduction`` and keep piece ``c`` of ``p`` along ``dim``.
    - ``all_to_all``: cut into ``p`` pieces along ``other_dim``, send piece ``k`` to position ``k``,
      concatenate what arrives along ``dim``: ``S(dim)`` becomes ``S(other_dim)``.
    - ``collective_permute``: take the part of position ``sources(mesh)[c]``, as it is.
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

    def sources(self, mesh: Mesh) -> tuple[int, ...]:
        """Return, of a permute, from which position of a group each gets its part: from itself
        where it has that already, and from each position once."""
        group = mesh.group(0, self.axes)
        held = [self.src.piece(rank, mesh) for rank in group]
        wanted = [self.dst.piece(rank, mesh) for rank in group]
        spare: dict[tuple[int, ...], list[int]] = {}
        for position, own in enumerate(held):
            if own != wanted[position]:
                spare.setdefault(own, []).append(position)
        return tuple(
            position if own == held[position] else spare[own].pop(0)
            for position, own in enumerate(wanted)
        )

    def __str__(self) -> str:
        return f"{self.kind} {list(self.axes)}: {self.src} -> {self.dst}"


@dataclass(frozen=True)
class Move:
    """One thing that a rank does for a step, and the sizes of what it makes.

    ``pad`` puts zeros behind what the step cuts, ``crop`` takes the padding off what it joined:
    both are copies, which tensors that divide do not need. The third is the step itself.
    """

    kind: StepKind | Literal["pad", "crop"]
    made: Sizes


def moves_of(step: ReshardStep, shape: Sequence[Size], mesh: Mesh) -> list[Move]:
    """Return what a rank does, in order, for one step of a tensor of ``shape``."""
    before, after = (end.local_shape(shape, mesh) for end in (step.src, step.dst))
    held, kept = (set(end.padded_dims(shape, mesh)) for end in (step.src, step.dst))
    if held == kept:
        return [Move(step.kind, after)]
    # In parts of the dimension that is cut or joined, whose padding is no part of the tensor.
    read, made = list(before), list(after)
    for dim in kept - held:
        read[dim] = _times(after[dim], step.dst.pieces(dim, mesh))
    for dim in held - kept:
        made[dim] = _times(before[dim], step.src.pieces(dim, mesh))
    moves = [Move("pad", tuple(read))] if kept - held else []
    moves.append(Move(step.kind, tuple(made)))
    return [*moves, Move("crop", after)] if held - kept else moves


def _times(part: Size, pieces: int) -> int:
    assert isinstance(part, int), f"padding of a symbolic dimension: {part}"
    return part * pieces


def is_mixed(layout: Layout) -> bool:
    """Say whether the layout is partial by two reductions at once.

    Such a tensor has no meaning: the result depends on which reduction is done first.
    """
    return len({p.reduction for p in layout.placements if p.is_partial}) > 1


def layouts_of_rank(rank: int, mesh: Mesh, reductions: Sequence[Reduction]) -> list[Layout]:
    """Return every layout of a tensor with ``rank`` dimensions, however large they are.

    Axes of one rank always replicate. Mixed reductions are left out. Those in the order of the mesh
    come first.
    """
    every = [REPLICATE, *map(split, range(rank)), *map(partial, reductions)]
    per_axis = [every if extent > 1 else [REPLICATE] for extent in mesh.shape]
    layouts = [one for one in map(Layout, grouped(mesh, per_axis)) if not is_mixed(one)]
    return [*layouts, *(other for one in layouts for other in reordered(one, mesh))]


def steps_from(
    src: Layout, rank: int, mesh: Mesh, reductions: Sequence[Reduction]
) -> Iterator[ReshardStep]:
    """Yield every step from ``src`` but permutes, whether or not its result divides a shape.

    All axes of a step change together, as one collective over the product of their ranks.
    """
    for placement in dict.fromkeys(src.placements):
        targets = _targets(placement, rank, reductions)
        for axes in _movable(src, placement, mesh):
            for target in targets:
                for order in _orders(axes, placement, target, mesh):
                    step = _step(src, order, placement, target)
                    if step is not None:
                        yield step


def permutes(layouts: Sequence[Layout], rank: int, mesh: Mesh) -> Iterator[ReshardStep]:
    """Yield the steps between those of ``layouts`` in which ranks have parts of equal sizes, but
    not the same ones."""
    alike: dict[tuple[object, ...], list[Layout]] = {}
    for layout in layouts:
        pieces = (layout.pieces(dim, mesh) for dim in range(rank))
        partial = (own if own.is_partial else None for own in layout.placements)
        alike.setdefault((*pieces, *partial), []).append(layout)
    for group in alike.values():
        for src, dst in itertools.permutations(group, 2):
            yield ReshardStep("collective_permute", _changed(src, dst, rank), src, dst)


def _changed(src: Layout, dst: Layout, rank: int) -> tuple[int, ...]:
    """Return the axes that do not split the same dimension at the same place, ascending."""
    ends = [(src.axes_splitting(dim), dst.axes_splitting(dim)) for dim in range(rank)]
    return tuple(sorted({axis for one, other in ends if one != other for axis in (*one, *other)}))


def _movable(src: Layout, placement: Placement, mesh: Mesh) -> Iterator[tuple[int, ...]]:
    """Yield which axes can leave ``placement`` together: of those that split a dimension the minor
    ones, whose pieces alone are neighbours in the tensor."""
    if placement.is_split:
        axes = src.axes_splitting(placement.dim)
        yield from (axes[start:] for start in reversed(range(len(axes))))
        return
    axes = tuple(axis for axis in src.axes_of(placement) if mesh.shape[axis] > 1)
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _orders(
    axes: tuple[int, ...], before: Placement, after: Placement, mesh: Mesh
) -> Iterator[tuple[int, ...]]:
    """Yield in which orders the axes may go: what was no split has none. On a deep mesh they must
    stay in the order of the mesh."""
    if before.is_split or not after.is_split or mesh.is_deep:
        yield axes
    else:
        yield from itertools.permutations(axes)


def _targets(before: Placement, rank: int, reductions: Sequence[Reduction]) -> list[Placement]:
    """Return the placements that one step reaches from ``before``."""
    splits = [split(dim) for dim in range(rank) if dim != before.dim]
    if before.is_replicate:
        return [*splits, *map(partial, reductions)]
    return [REPLICATE, *splits]


def _step(
    src: Layout, axes: tuple[int, ...], before: Placement, after: Placement
) -> ReshardStep | None:
    dst = src.moved(axes, after)
    if is_mixed(dst):
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
