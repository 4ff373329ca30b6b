"""Boxes of tensors that a rank copies when state moves from one plan's layouts to another's.

No whole tensor is assembled: a rank copies the intersections of its own part with other ranks'
parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensoropt.runtime.layout.layout import Box
from tensoropt.runtime.layout.mesh_layout import MeshLayout

__all__ = ["Piece", "Slices", "holders_of", "pieces_of"]

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Piece:
    """The intersection of two ranks' parts: ``theirs`` in the holder's, ``mine`` in the taker's."""

    holder: int
    theirs: Slices
    mine: Slices


def pieces_of(
    shape: Sequence[int],
    rank: int,
    wanted: MeshLayout,
    held: MeshLayout,
    distance: Callable[[int], float] = lambda _: 0.0,
) -> list[Piece]:
    """Return the pieces of parts in layout ``held`` that make up ``rank``'s part in ``wanted``.

    Ranks are counted in the mesh of their layout. If several ranks have the same boxes, the one
    with the smallest ``distance`` is read. Ties are broken by ``rank``, so that readers spread over
    the holders. Neither layout may be partial. O(ranks of ``held``) per tensor.
    """
    own = wanted.boxes(shape, rank)
    pieces = []
    for holders in holders_of(shape, held):
        for mine, theirs in itertools.product(own, held.boxes(shape, holders[0], once=True)):
            common = tuple(
                slice(max(a.start, b.start), min(a.stop, b.stop))
                for a, b in zip(mine.whole, theirs.whole, strict=True)
            )
            if all(part.start < part.stop for part in common):
                first = rank % len(holders)
                holder = min((*holders[first:], *holders[:first]), key=distance)
                pieces.append(Piece(holder, _in_part(common, theirs), _in_part(common, mine)))
    return pieces


def holders_of(shape: Sequence[int], held: MeshLayout) -> list[list[int]]:
    """Return the ranks that have each part."""
    holders: dict[tuple[int, ...], list[int]] = {}
    for rank in range(held.mesh.size):
        boxes = held.boxes(shape, rank)
        starts = tuple(own.start for box in boxes for own in box.whole)
        holders.setdefault(starts, []).append(rank)
    return list(holders.values())


def _in_part(slices: Slices, box: Box) -> Slices:
    """Return ``slices`` of the whole tensor, within ``box``, as slices of the rank's part."""
    return tuple(
        slice(own.start - whole.start + part.start, own.stop - whole.start + part.start)
        for own, whole, part in zip(slices, box.whole, box.part, strict=True)
    )
