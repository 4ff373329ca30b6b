"""Gradients of weights: the part of a backward pass that no other chunk waits for.

They are tasks of their own in some schedules. The cost of a searched step and the division of its
program find them by the same criterion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

__all__ = ["weight_gradients"]


def weight_gradients(
    chunks: Sequence[int | None],
    operands: Sequence[Iterable[int]],
    kept: Collection[int] = frozenset(),
) -> frozenset[int]:
    """Return the operations of backward passes on which nothing but updates depends.

    ``chunks`` has the chunk of each operation of a backward pass in program order, ``None`` for
    others. ``operands`` has the operations that each of them reads. An operation is a gradient of
    weights if all of its readers in backward passes are, and in its chunk. Operations that are
    ``kept`` in the backward pass are none. Linear in the operands.
    """
    needed = set(kept)  # the backward passes of some chunk wait for these
    found: set[int] = set()
    for index in reversed(range(len(chunks))):
        own = chunks[index]
        if own is None:
            continue
        if index not in needed:
            found.add(index)
        needed.update(other for other in operands[index] if index in needed or chunks[other] != own)
    return frozenset(found)
