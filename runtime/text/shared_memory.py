"""Memory that the ranks of a machine share: scores of the next token, and resharding of caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.layout.mesh_layout import MeshLayout
from tensoropt.runtime.support.arena import Arena, Block, map_block
from tensoropt.runtime.support.dtypes import Array

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["SharedScores", "gather", "reshard"]

_HEAD = 64  # bytes before the scores of a turn: the stop flag, and a number of each rank
_NUMBER = np.dtype(np.int64)


class SharedScores:
    """Scores of at most ``most`` tokens, shared by all ranks; a collective constructor.

    ``width`` is the size of the vocabulary. Scores are double-buffered: ranks may write the next
    scores while others still read the last scores. The barrier of each step keeps ranks from
    getting further ahead.
    """

    def __init__(self, comm: MPI.Comm, most: int, width: int, dtype: np.dtype[np.generic]) -> None:
        self._comm, self.most = comm, most
        head = _NUMBER.itemsize * (1 + comm.size)
        head += -head % _HEAD
        size = head + dtype.itemsize * most * width
        size += -size % _HEAD
        raw = np.frombuffer(_memory(comm, 2 * size), np.uint8)
        turns = (raw[at : at + size] for at in (0, size))
        self._turns = [_Turn(turn[:head], turn[head:], width, dtype) for turn in turns]

    def gather(
        self,
        give: Callable[[Array], None] | None,
        where: tuple[slice, slice],
        shape: tuple[int, int],
        *,
        stop: bool,
        number: int = 0,
    ) -> tuple[Array, bool, int]:
        """Return the whole scores, valid until the next call, then the result of `agree`.

        ``shape`` is the number of rows, and of tokens in each. ``give`` copies this rank's part to
        its place; None if it has none. ``where`` are the slices of rows and vocabulary of the part.
        """
        scores = self._turns[0].scores[: shape[0] * shape[1]].reshape(*shape, -1)
        if give is not None:
            give(scores[where[0], :, where[1]])
        return scores, *self.agree(stop=stop, number=number)

    def agree(self, *, stop: bool, number: int = 0) -> tuple[bool, int]:
        """Return the flag ``stop`` of rank 0, and the least ``number`` of all ranks."""
        turn = self._turns[0]
        self._turns.reverse()
        if self._comm.rank == 0:
            turn.stop[0] = stop
        turn.numbers[self._comm.rank] = number
        self._comm.Barrier()
        return bool(turn.stop[0]), int(turn.numbers[: self._comm.size].min())


class _Turn:
    def __init__(self, head: Array, raw: Array, width: int, dtype: np.dtype[np.generic]) -> None:
        numbers: Array = head.view(_NUMBER)
        self.stop, self.numbers = numbers[:1], numbers[1:]
        row = dtype.itemsize * width
        self.scores: Array = raw[: raw.nbytes // row * row].view(dtype).reshape(-1, width)


def gather(comm: MPI.Comm, part: Array, layout: MeshLayout) -> Array:
    """Return the whole array in shared memory, from this rank's ``part`` in ``layout``.

    A collective of all ranks of a machine.
    """
    shape = layout.global_shape(part.shape)
    size = part.dtype.itemsize * int(np.prod(shape))
    whole = np.frombuffer(_memory(comm, size), np.uint8)[:size].view(part.dtype).reshape(shape)
    if comm.rank in layout.sources():
        layout.put(whole, part, comm.rank)
    comm.Barrier()
    return whole


def reshard(comm: MPI.Comm, part: Array, layout: MeshLayout, to: MeshLayout) -> Array:
    """Return this rank's part of an array in the layout ``to``, from its ``part`` in ``layout``.

    A collective of all ranks of a machine. Raises `UserError` on all ranks if ``to`` does not
    divide the shape.
    """
    to.check(layout.global_shape(part.shape))
    return to.local_slice(gather(comm, part, layout), comm.rank)


def _memory(comm: MPI.Comm, size: int) -> memoryview:
    """Return shared memory that rank 0 allocates; all ranks are on one machine."""
    arena = Arena("text", size) if comm.rank == 0 else None
    block = Block(**comm.bcast(None if arena is None else asdict(arena.block)))
    memory = map_block(block, writable=True) if arena is None else arena.memory
    comm.Barrier()
    if arena is not None:
        arena.close()
    return memoryview(memory)
