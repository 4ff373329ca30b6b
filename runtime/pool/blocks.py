"""The memory that a pool shares with its ranks, in the process that started them.

Arrays are placed in anonymous blocks, which ranks map. A block is reused once no array in it is
referenced, so callers may keep arrays as long as they like.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count

import numpy as np

from tensoropt.runtime.pool.places import Place, Shape, array_at
from tensoropt.runtime.support.arena import CACHE_LINE_BYTES, Arena, Block
from tensoropt.runtime.support.dtypes import Array, name_of
from tensoropt.runtime.support.messages import Message

__all__ = ["Blocks", "Room", "Wanted"]

_MOST_FREE = 4  # free blocks to keep for reuse
_MOST = 64  # blocks: each is an open file
_SMALL = 1 << 16  # bytes: copying is faster than sharing up to this size

Wanted = tuple[np.dtype[np.generic], Shape]
"""The type and shape of an array."""


@dataclass(frozen=True)
class _Numbered:
    number: int
    arena: Arena
    shown: Block  # as ranks map it: sparse, because no rank uses all pages


@dataclass(frozen=True)
class Room:
    """Arrays in one block, with their places."""

    arrays: Mapping[str, Array]
    places: Mapping[str, Place]


class Blocks:
    """An allocator of shared arrays that recycles blocks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._free: list[_Numbered] = []
        self._back: deque[_Numbered] = deque()  # finalizers append during garbage collection
        self._owners: dict[int, tuple[weakref.ref[Array], _Numbered]] = {}
        self._blocks: dict[int, _Numbered] = {}
        self._gone: list[int] = []

    def allocate(self, wanted: Mapping[str, Wanted]) -> Room:
        """Return uninitialised arrays of these types and shapes."""
        offsets, end = {}, 0
        for name, (dtype, shape) in wanted.items():
            offsets[name] = end
            end += -(-dtype.itemsize * math.prod(shape) // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        if not wanted:
            return Room({}, {})
        block, raw = self._take_block(end)
        arrays = {name: array_at(raw, offsets[name], *its) for name, its in wanted.items()}
        places = {name: _place(block, offsets[name], array) for name, array in arrays.items()}
        return Room(arrays, places)

    def stage(self, arrays: Mapping[str, Array]) -> Room:
        """Return arrays that ranks can read: arrays outside of blocks are copied."""
        places = {name: place for name, array in arrays.items() if (place := self._find(array))}
        rest = {name: array for name, array in arrays.items() if name not in places}
        room = self.allocate(
            {n: (array.dtype.newbyteorder("="), array.shape) for n, array in rest.items()}
        )
        for name, array in rest.items():
            np.copyto(room.arrays[name], array)
        in_blocks = {name: arrays[name] for name in places}
        return Room({**in_blocks, **room.arrays}, {**places, **room.places})

    def hand_out(self, room: Room) -> dict[str, Array]:
        """Return a room's arrays to the caller; copies if they are small or blocks are many."""
        size = sum(array.nbytes for array in room.arrays.values())
        if size > _SMALL and len(self._blocks) < _MOST:
            return dict(room.arrays)
        return {name: array.copy() for name, array in room.arrays.items()}

    def list_changes(self, rooms: Iterable[Room], known: set[int]) -> Message:
        """Return the new and freed blocks, for a request to the ranks that uses these rooms.

        ``known`` are the numbers of the blocks that the ranks know; it is updated.
        """
        places = [place for room in rooms for place in room.places.values()]
        new = {place.number: place.block for place in places if place.number not in known}
        with self._lock:
            gone, self._gone = self._gone, []
        known.update(new)
        known.difference_update(gone)
        return {"blocks": {number: asdict(block) for number, block in new.items()}, "gone": gone}

    def _take_block(self, size: int) -> tuple[_Numbered, Array]:
        with self._lock:
            self._take_back()
            most = 2 * size + _SMALL
            fitting = [block for block in self._free if size <= block.shown.size <= most]
            block = min(fitting, key=lambda block: block.shown.size, default=None)
            if block is None:
                arena = Arena("pool", size)
                block = _Numbered(next(self._numbers), arena, replace(arena.block, sparse=True))
                weakref.finalize(block, arena.close).atexit = False
                self._blocks[block.number] = block
            else:
                self._free.remove(block)
            raw = np.frombuffer(block.arena.memory, np.uint8)
            self._owners[id(raw)] = weakref.ref(raw), block
        weakref.finalize(raw, self._back.append, block).atexit = False
        return block, raw

    def clear(self) -> None:
        """Free the unused blocks."""
        with self._lock:
            self._take_back(most=0)

    def _take_back(self, most: int = _MOST_FREE) -> None:
        while self._back:
            self._free.append(self._back.popleft())
        self._owners = {k: owner for k, owner in self._owners.items() if owner[0]() is not None}
        while len(self._free) > most:
            oldest = self._free.pop(0)
            del self._blocks[oldest.number]
            self._gone.append(oldest.number)

    def _find(self, array: Array) -> Place | None:
        """Return the place of an array, None unless it is in a block in a form that ranks read."""
        owner = self._owners.get(id(array.base))
        if owner is None or owner[0]() is not array.base or not array.nbytes:
            return None
        if not array.flags.c_contiguous or not array.dtype.isnative:
            return None
        assert array.base is not None
        return _place(owner[1], array.ctypes.data - array.base.ctypes.data, array)


def _place(block: _Numbered, offset: int, array: Array) -> Place:
    return Place(block.number, block.shown, offset, name_of(array.dtype), array.shape)
