"""Boxes of tensors that a rank copies when state moves from one plan's layouts to another's.

No whole tensor is assembled: a rank copies the intersections of its own part with other ranks'
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensoropt.runtime.layout.mesh_layout import MeshLayout

__all__ = ["Piece", "pieces_of"]

Box = tuple[slice, ...]


@dataclass(frozen=True)
class Piece:
    """The intersection of two ranks' parts: ``theirs`` in the holder's, ``mine`` in the taker's."""

    holder: int
    theirs: Box
    mine: Box


def pieces_of(
    shape: Sequence[int],
    rank: int,
    wanted: MeshLayout,
    held: MeshLayout,
    distance: Callable[[int], float] = lambda _: 0.0,
) -> list[Piece]:
    """Return the pieces of parts in layout ``held`` that make up ``rank``'s part in ``wanted``.

    If several ranks have the same box, the one with the smallest ``distance`` is read. Ties are
    broken by ``rank``, so that readers spread over the holders. Neither layout may be partial.
    O(ranks of ``held``) per tensor.
    """
    own = wanted.bounds(shape, rank)
    pieces = []
    for holders in _holders(shape, held).values():
        box = held.bounds(shape, holders[0])
        common = tuple(
            slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(own, box, strict=True)
        )
        if all(part.start < part.stop for part in common):
            first = rank % len(holders)
            holder = min((*holders[first:], *holders[:first]), key=distance)
            pieces.append(Piece(holder, _relative_to(common, box), _relative_to(common, own)))
    return pieces


def _holders(shape: Sequence[int], held: MeshLayout) -> dict[tuple[int, ...], list[int]]:
    """Return the ranks that have each box, keyed by its start."""
    holders: dict[tuple[int, ...], list[int]] = {}
    for rank in range(held.mesh.size):
        start = tuple(part.start for part in held.bounds(shape, rank))
        holders.setdefault(start, []).append(rank)
    return holders


def _relative_to(box: Box, outer: Box) -> Box:
    """Return ``box`` relative to the start of ``outer``."""
    return tuple(
        slice(inner.start - around.start, inner.stop - around.start)
        for inner, around in zip(box, outer, strict=True)
    )
