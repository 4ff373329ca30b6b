"""Which boxes of which tensors a rank copies, when state goes from one plan's layouts to another's.

Nothing goes through a whole tensor: a rank copies the intersection of what its own layout wants
with what each holder has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensoropt.runtime.plan.layout import Layout

__all__ = ["Piece", "pieces_of"]

Box = tuple[slice, ...]


@dataclass(frozen=True)
class Piece:
    """What one holder has of what a rank wants: the box in the part of each."""

    holder: int
    theirs: Box
    mine: Box


def pieces_of(
    shape: Sequence[int],
    rank: int,
    wanted: Layout,
    held: Layout,
    distance: Callable[[int], float] = lambda _: 0.0,
) -> list[Piece]:
    """Return the pieces that make up the part of ``rank`` in ``wanted`` from parts in ``held``.

    Of several ranks that hold the same box the one with the smallest ``distance`` is asked; among
    equals they take turns, so that readers spread over them. Neither layout is partial. O(ranks
    that hold) for one tensor.
    """
    own = wanted.bounds(shape, rank)
    pieces = []
    for holders in _holders(shape, held).values():
        box = held.bounds(shape, holders[0])
        common = tuple(_common(a, b) for a, b in zip(own, box, strict=True))
        if all(part.start < part.stop for part in common):
            holder = _nearest(holders, rank, distance)
            pieces.append(Piece(holder, _within(common, box), _within(common, own)))
    return pieces


def _holders(shape: Sequence[int], held: Layout) -> dict[tuple[int, ...], list[int]]:
    """Return the ranks that hold each box, by where it starts."""
    holders: dict[tuple[int, ...], list[int]] = {}
    ranks = 1
    for extent in held.mesh:
        ranks *= extent
    for rank in range(ranks):
        start = tuple(part.start for part in held.bounds(shape, rank))
        holders.setdefault(start, []).append(rank)
    return holders


def _nearest(holders: Sequence[int], rank: int, distance: Callable[[int], float]) -> int:
    first = rank % len(holders)
    return min((*holders[first:], *holders[:first]), key=distance)


def _common(a: slice, b: slice) -> slice:
    return slice(max(a.start, b.start), min(a.stop, b.stop))


def _within(box: Box, outer: Box) -> Box:
    """Return ``box`` counted from where ``outer`` starts."""
    return tuple(
        slice(inner.start - around.start, inner.stop - around.start)
        for inner, around in zip(box, outer, strict=True)
    )
