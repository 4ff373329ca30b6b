"""Parallel branches of a forward pass, such as the encoders of an image and of a text.

Operations have an order, and so have the chunks that cuts make of it. Chunks are a chain, with two
exceptions: a chunk that begins a branch need not wait for the one before, and a chunk reads from
all chunks with values that its operations read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.compiler.stages.order import Floats, Ints, Order
from tensoropt.compiler.stages.separation import separates
from tensoropt.runtime.stages.schedule import Reads

__all__ = ["Branch", "begin_s", "branches_of", "reads_of", "sent_bytes"]

_LEAST_CHUNK = 0.5
"""The part of a chunk of mean time that parallel operations have at least: with less, a stage for
them would have less than half of its share."""


@dataclass(frozen=True)
class Branch:
    """A branch of a forward pass: operations between places that can run at the same time.

    Operations from ``begin`` on and before ``join`` read nothing from those from ``fork`` on and
    before ``begin``.
    """

    fork: int
    begin: int
    join: int


def branches_of(order: Order, times_s: Floats, passing_bytes: Ints, chunks: int) -> list[Branch]:
    """Return the branches that can have chunks of their own, if there are ``chunks``.

    Each has half a chunk's time at least, and so have the operations from its fork on. All parts
    that their beginnings make read a parameter first. Of neighbouring beginnings the fewest bytes
    pass the one that counts. ``times_s`` and ``passing_bytes`` are of each place. ``O(n log n)`` in
    the values.
    """
    until_s = np.concatenate([[0.0], np.cumsum(times_s)])
    least_s, count = _LEAST_CHUNK * until_s[-1] / chunks, len(times_s)
    made, read = order.forward_reads
    can_begin = np.flatnonzero(separates(made, read, times_s, least_s))
    begins: list[int] = []
    for place in np.intersect1d(can_begin, order.beginnings).tolist():
        if not begins or until_s[place] - until_s[begins[-1]] >= least_s:
            begins.append(place)
        elif passing_bytes[place] < passing_bytes[begins[-1]]:
            begins[-1] = place
    found: list[Branch] = []
    reads, at = np.searchsorted(order.first_reads, [*begins, count]).tolist(), 0
    for place, before, after in zip(begins, reads[:-1], reads[1:], strict=True):
        if at < before < after and len(found) < chunks - 1:
            passes = (made < place) & (place <= read)
            first = np.searchsorted(until_s, until_s[place] - least_s, "right") - 1
            join = read[passes & (made >= first)].min(initial=count)
            fork = made[passes & (read < join)].max(initial=-1) + 1
            found.append(Branch(int(fork), place, int(join)))
            at = before
    return found


def reads_of(order: Order, cuts: Sequence[int], begins: Sequence[int]) -> Reads:
    """Return the chunks that each chunk reads from, or that its backward pass sends to.

    Branches begin at some of the ``cuts``.
    """
    found: list[set[int]] = [
        set(),
        *({chunk} if cut not in begins else set() for chunk, cut in enumerate(cuts)),
    ]
    if begins:
        homes, (values, readers) = order.home_chunks(cuts), order.reads
        inside = (order.places[order.made[values]] >= 0) & (order.places[readers] >= 0)
        pairs = np.sort([homes[order.made[values[inside]]], homes[readers[inside]]], axis=0)
        for source, chunk in np.unique(pairs, axis=1).T.tolist():
            if source != chunk:
                found[chunk].add(source)
    return tuple(tuple(sorted(own)) for own in found)


def sent_bytes(order: Order, sizes: Ints, cuts: Sequence[int], begins: Sequence[int]) -> Ints:
    """Return the most bytes that each chunk sends to a chunk that reads from it.

    Values that later chunks of a branch read pass from chunk to chunk, others from the chunk that
    makes them to the first of each branch that reads them. ``sizes`` has the bytes of each value.
    """
    count = len(cuts) + 1
    branch = np.cumsum([cut in begins for cut in (None, *cuts)])
    homes, (values, readers) = order.home_chunks(cuts), order.forward_uses
    source, chunk = homes[order.made[values]], homes[readers]
    # For each value, and each branch that reads it, the first and the last chunk with a reader.
    pairs, group = np.unique(values * count + branch[chunk], return_inverse=True)
    first, last = np.full(len(pairs), count), np.zeros(len(pairs), np.int64)
    np.minimum.at(first, group, chunk)
    np.maximum.at(last, group, chunk)
    maker = np.zeros(len(pairs), np.int64)
    maker[group] = source
    is_inside, size = branch[maker] == pairs % count, sizes[pairs // count]
    across = np.zeros((count, count))
    np.add.at(across, (maker[~is_inside], first[~is_inside]), size[~is_inside])
    first = np.where(is_inside, maker, first)
    passing = np.cumsum(np.bincount(first, size, count) - np.bincount(last, size, count))
    most: Ints = np.maximum(across.max(axis=1), passing).astype(np.int64)
    return most


def begin_s(order: Order, times_s: Floats, begins: Sequence[int]) -> Floats:
    """Return the time before each place, and before the end of a forward pass.

    That is the longest path, over operations that follow each other in a branch, and over values
    that pass between branches, which begin at the places ``begins``. Linear in the values.
    """
    bounds = [0, *begins, len(times_s)]
    made, read = order.forward_reads
    found = np.zeros(len(times_s) + 1)
    for begin, end in itertools.pairwise(bounds):
        given = (made < begin) & (begin <= read) & (read < end)
        arrived = np.zeros(end - begin)
        np.maximum.at(arrived, read[given] - begin, (found[:-1] + times_s)[made[given]])
        until_s = np.concatenate([[0.0], np.cumsum(times_s[begin:end])])
        found[begin:end] = np.maximum.accumulate(arrived - until_s[:-1]) + until_s[:-1]
        found[-1] = max(found[-1], found[end - 1] + times_s[end - 1])
    return found
