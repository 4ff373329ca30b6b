"""Scores of the next token, whole on every rank, though each computes a part of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.plan.layout import Layout
from tensoropt.runtime.support.arena import Arena, Block, mapped
from tensoropt.runtime.support.dtypes import Array

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["SharedScores"]

_HEAD = 64  # bytes before the scores of a turn: whether to stop


class SharedScores:
    """Memory of all ranks for ``shape`` scores, `[batch, 1, vocabulary]`; made by all together.

    ``has_part``: this rank's part counts, and is not another one's, too. There are two turns: while
    some ranks read one, others may be at the next, but not beyond, as each waits for all.
    """

    def __init__(
        self, comm: MPI.Comm, layout: Layout, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> None:
        self.shape = shape
        self._comm, self._layout = comm, layout
        size = _HEAD + dtype.itemsize * int(np.prod(shape))
        size += -size % _HEAD
        raw = np.frombuffer(_shared(comm, 2 * size), np.uint8)
        self._turns = [_Turn(raw[at : at + size], shape, dtype) for at in (0, size)]
        self.has_part = comm.rank in layout.sources()

    def joined(self, part: Array | None, *, stop: bool) -> Array | None:
        """Return the scores of which this rank has ``part``, or none of the parts that count.

        They are there until it is called again. Returns None where rank 0 is to ``stop``.
        """
        turn = self._turns[0]
        self._turns.reverse()
        if part is not None:
            self._layout.part_of(turn.scores, self._comm.rank)[...] = part
        if self._comm.rank == 0:
            turn.stop[0] = stop
        self._comm.Barrier()
        return None if turn.stop[0] else turn.scores


class _Turn:
    def __init__(self, raw: Array, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        size = dtype.itemsize * int(np.prod(shape))
        self.stop = raw[:1]
        self.scores: Array = raw[_HEAD : _HEAD + size].view(dtype).reshape(shape)


def _shared(comm: MPI.Comm, size: int) -> memoryview:
    """Return memory of rank 0 that all ranks have, which are on one machine."""
    arena = Arena("scores", size) if comm.rank == 0 else None
    block = Block(**comm.bcast(None if arena is None else asdict(arena.block)))
    memory = mapped(block, writable=True) if arena is None else arena.memory
    comm.Barrier()
    if arena is not None:
        arena.close()
    return memoryview(memory)
