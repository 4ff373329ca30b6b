"""Steps of a reshard, each one collective or one local op."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.layout.layouts import reordered
from tensoropt.compiler.layout.mesh import grouped, is_deep
from tensoropt.compiler.layout.sizes import Size, Sizes
from tensoropt.runtime.layout.layout import (
    REPLICATE,
    Layout,
    Placement,
    Reduction,
    partial,
    split,
)
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import COLLECTIVES, Settings

__all__ = [
    "CONTIGUOUS",
    "Move",
    "ReshardStep",
    "SplitsOfDims",
    "layouts_of_rank",
    "moves_of",
    "permutes",
    "steps_from",
]

_KINDS: dict[tuple[str, str], str] = {
    **{own.placements: own.name for own in COLLECTIVES.values() if own.reshards},
    ("R", "S"): "all_slice",
    ("R", "P"): "partialize",
}


SplitsOfDims = Mapping[int, Sequence[Placement]]
"""The splits in blocks or between units that each dimension of a tensor may have."""

CONTIGUOUS: SplitsOfDims = {}
"""No blocks and no units."""


@dataclass(frozen=True)
class ReshardStep:
    """One collective or local op: it changes the common placement of ``axes``, or permutes parts.

    Groups are in the order of ``axes``, major first. For a rank at position ``c`` of a group of
    ``p`` ranks, the kinds do the following:

    - ``all_gather``: concatenate the group's parts along ``dim``.
    - ``all_reduce``: combine the group's parts by ``reduction``.
    - ``reduce_scatter``: combine them by ``reduction`` and keep piece ``c`` of ``p`` along ``dim``.
    - ``all_to_all``: split into ``p`` pieces along ``other_dim``, send piece ``k`` to position
      ``k``, concatenate the received pieces along ``dim``: ``S(dim)`` becomes ``S(other_dim)``.
    - ``collective_permute``: take the part of position ``sources(mesh)[c]`` unchanged.
    - ``all_slice``: keep piece ``c`` of ``p`` along ``dim``; nothing is sent.
    - ``partialize``: for ``sum``, fill with zeros except at ``c = 0``; a no-op for ``max`` and
      ``min``, which are idempotent.

    Piece ``c`` of a dimension in blocks consists of its pieces of all blocks. Collectives cut and
    join pieces that are contiguous, so :func:`moves_of` reorders the dimension around them. This
    adds the padding and the copies of blocks in units, or leaves them out.
    """

    kind: str
    axes: tuple[int, ...]
    src: Layout
    dst: Layout
    dim: int | None = None
    other_dim: int | None = None
    reduction: Reduction | None = None

    @property
    def cut_dim(self) -> int | None:
        """The dimension that is cut into one piece per rank, if any."""
        return self.dim if self.other_dim is None else self.other_dim

    @property
    def arranged_dim(self) -> int | None:
        """The dimension in blocks that is cut, and first put in the order of the pieces."""
        own = self.dst.placements[self.axes[0]]
        return own.dim if own.blocks and self.kind in ("reduce_scatter", "all_to_all") else None

    @property
    def restored_dim(self) -> int | None:
        """The dimension in blocks that is joined, and then put in the order of the blocks."""
        own = self.src.placements[self.axes[0]]
        return own.dim if own.blocks and self.kind in ("all_gather", "all_to_all") else None

    def settings(self, mesh: Mesh) -> Settings:
        """Return the attributes of a collective's operator."""
        traits = COLLECTIVES[self.kind]
        given: dict[str, int | str | Sequence[int] | None] = {
            traits.joins: self.dim,
            traits.cuts: self.cut_dim,
            "reduction": self.reduction,
            "sources": self.sources(mesh) if "sources" in traits.attributes else None,
        }
        return {name: own for name in traits.attributes if (own := given[name]) is not None}

    def sources(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the position in the group that each position of a permute receives from.

        Each position is used once. A position that already has the right part keeps it.
        """
        group = mesh.group(0, self.axes)
        before = [self.src.piece(rank, mesh) for rank in group]
        after = [self.dst.piece(rank, mesh) for rank in group]
        spare: dict[tuple[int, ...], list[int]] = {}
        for position, piece in enumerate(before):
            if piece != after[position]:
                spare.setdefault(piece, []).append(position)
        return tuple(
            position if piece == before[position] else spare[piece].pop(0)
            for position, piece in enumerate(after)
        )

    def __str__(self) -> str:
        return f"{self.kind} {list(self.axes)}: {self.src} -> {self.dst}"


@dataclass(frozen=True)
class Move:
    """One operation of a rank for a step, and the sizes of its result.

    ``pad`` appends zeros before a step slices, ``crop`` removes the padding after a step joins;
    sizes that divide need neither. ``arrange`` puts a dimension in blocks in the order of the
    pieces before a step cuts it, ``restore`` in the order of the blocks after a step joins it. All
    are copies. Other kinds are the step itself.
    """

    kind: str
    made: Sizes


def moves_of(step: ReshardStep, shape: Sequence[Size], mesh: Mesh) -> list[Move]:
    """Return the operations of a rank, in order, for one step of a tensor of ``shape``."""
    before, after = (end.local_shape(shape, mesh) for end in (step.src, step.dst))
    padded_before, padded_after = (
        set(end.padded_dims(shape, mesh)) for end in (step.src, step.dst)
    )
    pads = {dim for dim in padded_after - padded_before if not step.dst.blocks(dim)}
    crops = {dim for dim in padded_before - padded_after if not step.src.blocks(dim)}
    # The step reads or makes the padded size of a dimension that it slices or joins.
    read, made = list(before), list(after)
    for dim in pads:
        read[dim] = _times(after[dim], step.dst.pieces(dim, mesh))
    for dim in crops:
        made[dim] = _times(before[dim], step.src.pieces(dim, mesh))
    moves = [Move("pad", tuple(read))] if pads else []
    arranged, restored = step.arranged_dim, step.restored_dim
    if arranged is not None:
        read[arranged] = _times(after[arranged], mesh.extent(step.axes))
        moves.append(Move("arrange", tuple(read)))
    if restored is None:
        moves.append(Move(step.kind, tuple(made)))
    else:
        whole, made[restored] = made[restored], _times(before[restored], mesh.extent(step.axes))
        moves.append(Move(step.kind, tuple(made)))
        made[restored] = whole
        moves.append(Move("restore", tuple(made)))
    return [*moves, Move("crop", after)] if crops else moves


def _times(part: Size, pieces: int) -> int:
    assert isinstance(part, int), f"padding of a symbolic dimension: {part}"
    return part * pieces


def layouts_of_rank(
    rank: int, mesh: Mesh, reductions: Sequence[Reduction], others: SplitsOfDims = CONTIGUOUS
) -> list[Layout]:
    """Return every layout of a tensor with ``rank`` dimensions, regardless of their sizes.

    ``others`` has the splits in blocks and between units. Axes of extent 1 are replicated. Mixed
    reductions and mixed splits are left out. Layouts in the order of the mesh come first.
    """
    every = [REPLICATE, *_splits(range(rank), others), *map(partial, reductions)]
    per_axis = [every if extent > 1 else [REPLICATE] for extent in mesh.shape]
    layouts = [
        layout
        for layout in map(Layout, grouped(mesh, per_axis))
        if not layout.is_mixed and not layout.mixes_splits
    ]
    return [*layouts, *(other for layout in layouts for other in reordered(layout, mesh))]


def _splits(dims: Iterable[int], others: SplitsOfDims) -> list[Placement]:
    return [own for dim in dims for own in (split(dim), *others.get(dim, ()))]


def steps_from(
    src: Layout,
    rank: int,
    mesh: Mesh,
    reductions: Sequence[Reduction],
    others: SplitsOfDims = CONTIGUOUS,
) -> Iterator[ReshardStep]:
    """Yield every step from ``src`` except permutes, whether or not its result fits a shape.

    All axes of a step change together, in one collective over the product of their extents. A
    dimension can also be split as in ``others``.
    """
    for placement in dict.fromkeys(src.placements):
        targets = _targets(placement, rank, reductions, others)
        for axes in _movable(src, placement, mesh):
            for target in targets:
                for order in _orders(axes, placement, target, mesh):
                    step = _step(src, order, placement, target)
                    if step is not None:
                        yield step


def permutes(layouts: Sequence[Layout], rank: int, mesh: Mesh) -> Iterator[ReshardStep]:
    """Yield the permutes between ``layouts``: same sizes of parts, but other parts per rank."""
    by_sizes: dict[tuple[object, ...], list[Layout]] = {}
    for layout in layouts:
        pieces = ((layout.pieces(dim, mesh), layout.split_of(dim)) for dim in range(rank))
        partial = (own if own.is_partial else None for own in layout.placements)
        by_sizes.setdefault((*pieces, *partial), []).append(layout)
    for group in by_sizes.values():
        for src, dst in itertools.permutations(group, 2):
            yield ReshardStep("collective_permute", _changed(src, dst, rank), src, dst)


def _changed(src: Layout, dst: Layout, rank: int) -> tuple[int, ...]:
    """Return the axes that do not split the same dimension at the same place, ascending."""
    ends = [(src.axes_splitting(dim), dst.axes_splitting(dim)) for dim in range(rank)]
    return tuple(sorted({axis for one, other in ends if one != other for axis in (*one, *other)}))


def _movable(src: Layout, placement: Placement, mesh: Mesh) -> Iterator[tuple[int, ...]]:
    """Yield the sets of axes that can leave ``placement`` together.

    Of a split dimension these are the minor axes: only their pieces are adjacent in the tensor.
    """
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
    """Yield the possible orders of ``axes``: all orders for a new split, else the given order.

    On a deep mesh the axes stay in the order of the mesh.
    """
    if before.is_split or not after.is_split or is_deep(mesh):
        yield axes
    else:
        yield from itertools.permutations(axes)


def _targets(
    before: Placement, rank: int, reductions: Sequence[Reduction], others: SplitsOfDims
) -> list[Placement]:
    """Return the placements that one step reaches from ``before``."""
    splits = _splits((dim for dim in range(rank) if dim != before.dim), others)
    if before.is_replicate:
        return [*splits, *map(partial, reductions)]
    return [REPLICATE, *splits]


def _step(
    src: Layout, axes: tuple[int, ...], before: Placement, after: Placement
) -> ReshardStep | None:
    dst = src.moved(axes, after)
    if dst.is_mixed or dst.mixes_splits:
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
