"""The state of a CPU rank, in a block that other ranks map and read."""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from tensoropt.elastic.generation.memory import Move, Source, Way
from tensoropt.elastic.generation.places import arrays_in, size_of
from tensoropt.runtime.device.provider import HostArray, PlacedArray
from tensoropt.runtime.support.arena import Arena, Block, map_block
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["HostMemory"]

_CHUNK = 1 << 22  # bytes that one thread copies at a time

Copy = tuple[Array, Array]
"""Target and source of a copy."""


class HostMemory:
    """A `StateMemory`: the rank computes directly in its block."""

    def __init__(self, plan: TrainingPlan, rank: int) -> None:
        self._arena = self.arena("state", size_of(plan, rank))
        self._arrays = arrays_in(self._arena.memory, plan, rank)

    def arrays(self) -> Mapping[str, PlacedArray]:
        return {name: HostArray(array) for name, array in self._arrays.items()}

    def block(self) -> Block:
        return self._arena.block

    def publish(self) -> None:
        """Do nothing: the state is in host memory already."""

    def open(self, blocks: Sequence[Block | None], plan: TrainingPlan) -> Source:
        memory = [None if block is None else map_block(block) for block in blocks]
        found = [
            None if block is None else arrays_in(block, plan, rank)
            for rank, block in enumerate(memory)
        ]
        return _HostSource(self._arrays, found, [block for block in memory if block is not None])

    def arena(self, name: str, size: int) -> Arena:
        arena = Arena(name, size)
        arena.touch()
        return arena

    def save(self, names: Iterable[str], into: Mapping[str, Array]) -> None:
        for name in names:
            np.copyto(into[name], self._arrays[name])


class _HostSource:
    """A `Source` of blocks that are mapped into this process."""

    moved_by: Way = "memory"
    why: str | None = None

    def __init__(
        self,
        into: Mapping[str, Array],
        found: Sequence[Mapping[str, Array] | None],
        memory: Sequence[mmap.mmap],
    ) -> None:
        self._into, self._found, self._memory = into, found, memory

    def distance(self, holder: int) -> float:
        return math.inf if self._found[holder] is None else 0.0

    def prepare(self, moves: Sequence[Move], threads: int) -> Callable[[], None]:
        pairs = ((self._into[m.name][m.piece.mine], self._source(m)) for m in moves)
        shares = _share_out([chunk for pair in pairs for chunk in _chunks(*pair)], threads)

        def copy() -> None:
            _copy_with_threads(shares)
            shares.clear()  # its views would keep the blocks mapped

        return copy

    def _source(self, move: Move) -> Array:
        found = self._found[move.piece.holder]
        assert found is not None, f"rank {move.piece.holder} has no block here"
        return found[move.name][move.piece.theirs]

    def close(self) -> None:
        """Unmap the blocks on a thread: a gigabyte takes a fifth of a second."""
        self._found = ()
        threading.Thread(target=_unmap, args=(self._memory,)).start()


def _share_out(chunks: Sequence[Copy], threads: int) -> list[list[Copy]]:
    """Return lists of copies of about equal size: one per thread, fewer if there is little data."""
    total = sum(into.nbytes for into, _ in chunks)
    count = max(1, min(threads, total // _CHUNK))
    shares: list[list[Copy]] = [[] for _ in range(count)]
    before = 0
    for chunk in chunks:
        shares[min(before * count // max(total, 1), count - 1)].append(chunk)
        before += chunk[0].nbytes
    return shares


def _copy_with_threads(shares: Sequence[Sequence[Copy]]) -> None:
    first, *rest = shares
    with ThreadPoolExecutor(len(shares)) as pool:
        others = [pool.submit(_copy_all, share) for share in rest]
        _copy_all(first)
        for other in others:
            other.result()


def _copy_all(copies: Iterable[Copy]) -> None:
    for into, source in copies:
        np.copyto(into, source)


def _unmap(memory: Iterable[mmap.mmap]) -> None:
    for block in memory:
        with suppress(BufferError):  # after a failed copy a view remains, and frees the block later
            block.close()


def _chunks(into: Array, source: Array) -> Iterator[Copy]:
    """Yield both in slices of about `_CHUNK` bytes along the first dimension."""
    if into.ndim == 0 or into.nbytes <= _CHUNK:
        yield into, source
        return
    rows = max(1, len(into) * _CHUNK // into.nbytes)
    for start in range(0, len(into), rows):
        yield into[start : start + rows], source[start : start + rows]
