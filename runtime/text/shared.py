"""Memory that the ranks of a machine share: scores of the next token, and caches that are moved."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.plan.layout import Layout
from tensoropt.runtime.support.arena import Arena, Block, mapped
from tensoropt.runtime.support.dtypes import Array

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["SharedScores", "moved"]

_HEAD = 64  # bytes before the scores of a turn: whether to stop


class SharedScores:
    """Memory of all ranks for ``shape`` scores, `[batch, 1, vocabulary]`; made by all together.

    There are two turns: while some ranks read one, others may be at the next, but not beyond, as
    each waits for all.
    """

    def __init__(self, comm: MPI.Comm, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self.shape, self._comm = shape, comm
        size = _HEAD + dtype.itemsize * int(np.prod(shape))
        size += -size % _HEAD
        raw = np.frombuffer(_memory(comm, 2 * size), np.uint8)
        self._turns = [_Turn(raw[at : at + size], shape, dtype) for at in (0, size)]

    def joined(self, part: Array | None, where: tuple[slice, slice], *, stop: bool) -> Array | None:
        """Return the scores of which this rank has ``part``, None if others have it, too.

        ``where`` says which sequences and which tokens of the vocabulary these are.
        They are there until it is called again. Returns None where rank 0 is to ``stop``.
        """
        turn = self._turns[0]
        self._turns.reverse()
        if part is not None:
            turn.scores[where[0], :, where[1]] = part
        if self._comm.rank == 0:
            turn.stop[0] = stop
        self._comm.Barrier()
        return None if turn.stop[0] else turn.scores


class _Turn:
    def __init__(self, raw: Array, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        size = dtype.itemsize * int(np.prod(shape))
        self.stop = raw[:1]
        self.scores: Array = raw[_HEAD : _HEAD + size].view(dtype).reshape(shape)


def moved(comm: MPI.Comm, part: Array, layout: Layout, to: Layout) -> Array:
    """Return this rank's part of an array in the layout ``to``, of its ``part`` in ``layout``.

    All ranks of a machine move it together. Raises `UserError` on all where it does not divide.
    """
    shape = layout.global_shape(part.shape)
    to.check(shape)
    size = part.dtype.itemsize * int(np.prod(shape))
    whole = np.frombuffer(_memory(comm, size), np.uint8)[:size].view(part.dtype).reshape(shape)
    if comm.rank in layout.sources():
        layout.part_of(whole, comm.rank)[...] = part
    comm.Barrier()
    return to.local_slice(whole, comm.rank)


def _memory(comm: MPI.Comm, size: int) -> memoryview:
    """Return memory of rank 0 that all ranks have, which are on one machine."""
    arena = Arena("text", size) if comm.rank == 0 else None
    block = Block(**comm.bcast(None if arena is None else asdict(arena.block)))
    memory = mapped(block, writable=True) if arena is None else arena.memory
    comm.Barrier()
    if arena is not None:
        arena.close()
    return memoryview(memory)
