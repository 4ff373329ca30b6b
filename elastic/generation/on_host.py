"""The state of a rank that computes on CPU cores: it lies in a block that others map and read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tensoropt.elastic.generation.arena import Arena, Block, mapped
from tensoropt.elastic.generation.memory import Move, Source, Way
from tensoropt.elastic.generation.places import arrays_in, size_of
from tensoropt.runtime.device.provider import HostArray, PlacedArray
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["HostMemory"]

_CHUNK = 1 << 22  # bytes that one thread copies at a time


class HostMemory:
    """A `StateMemory`: the rank computes in the block itself."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._arena = self.arena("state", size_of(plan))
        self._arrays = arrays_in(self._arena.memory, plan)

    def arrays(self) -> Mapping[str, PlacedArray]:
        return {name: HostArray(array) for name, array in self._arrays.items()}

    def block(self) -> Block:
        return self._arena.block

    def publish(self) -> None:
        """Nothing to do: it is there."""

    def open(self, blocks: Sequence[Block | None], plan: TrainingPlan) -> Source:
        found = [None if block is None else arrays_in(mapped(block), plan) for block in blocks]
        return _HostSource(self._arrays, found)

    def arena(self, name: str, size: int) -> Arena:
        arena = Arena(name, size)
        arena.touch()
        return arena

    def save(self, names: Iterable[str], into: Mapping[str, Array]) -> None:
        for name in names:
            np.copyto(into[name], self._arrays[name])


class _HostSource:
    """A `Source`: blocks that are mapped here."""

    moved_by: Way = "memory"
    why: str | None = None

    def __init__(
        self, into: Mapping[str, Array], found: Sequence[Mapping[str, Array] | None]
    ) -> None:
        self._into, self._found = into, found

    def distance(self, holder: int) -> float:
        return math.inf if self._found[holder] is None else 0.0

    def copy(self, moves: Sequence[Move], threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            copies = [
                pool.submit(np.copyto, *pair)
                for move in moves
                for pair in _chunks(self._into[move.name][move.piece.mine], self._source(move))
            ]
        for copy in copies:
            copy.result()

    def _source(self, move: Move) -> Array:
        found = self._found[move.piece.holder]
        assert found is not None, f"rank {move.piece.holder} has no block here"
        return found[move.name][move.piece.theirs]

    def close(self) -> None:
        self._found = ()


def _chunks(into: Array, source: Array) -> Iterator[tuple[Array, Array]]:
    """Yield both in slices along the first dimension that are small enough to share out."""
    if into.ndim == 0 or into.nbytes <= _CHUNK:
        yield into, source
        return
    rows = max(1, len(into) * _CHUNK // into.nbytes)
    for start in range(0, len(into), rows):
        yield into[start : start + rows], source[start : start + rows]
