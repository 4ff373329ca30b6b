"""The memory that a pool shares with its ranks, as the process has it that started them.

Arrays lie in blocks without a name, which ranks map. A block is used again when nobody has an array
in it any more, so callers keep what they were given as long as they like.
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
from tensoropt.runtime.support.arena import Arena, Block
from tensoropt.runtime.support.dtypes import Array, name_of
from tensoropt.runtime.support.messages import Message

__all__ = ["Blocks", "Room", "Wanted"]

_ALIGNMENT = 64  # bytes of a cache line
_MOST_FREE = 4  # blocks that are kept for later
_MOST = 64  # blocks: each is an open file
_SMALL = 1 << 16  # bytes that are copied sooner than shared

Wanted = tuple[np.dtype[np.generic], Shape]
"""The type and shape of an array."""


@dataclass(frozen=True)
class _Numbered:
    number: int
    arena: Arena
    shown: Block  # as ranks have it: sparse, since none of them uses all pages at once


@dataclass(frozen=True)
class Room:
    """Arrays in one block, and their places."""

    arrays: Mapping[str, Array]
    places: Mapping[str, Place]


class Blocks:
    """Blocks that are given out and come back; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._free: list[_Numbered] = []
        self._back: deque[_Numbered] = deque()  # appended to while memory is collected
        self._owners: dict[int, tuple[weakref.ref[Array], _Numbered]] = {}
        self._blocks: dict[int, _Numbered] = {}
        self._gone: list[int] = []

    def room(self, wanted: Mapping[str, Wanted]) -> Room:
        """Return arrays of these types and shapes, whose values are not set."""
        offsets, end = {}, 0
        for name, (dtype, shape) in wanted.items():
            offsets[name] = end
            end += -(-dtype.itemsize * math.prod(shape) // _ALIGNMENT) * _ALIGNMENT
        if not wanted:
            return Room({}, {})
        block, raw = self._taken(end)
        arrays = {name: array_at(raw, offsets[name], *its) for name, its in wanted.items()}
        places = {name: _place(block, offsets[name], array) for name, array in arrays.items()}
        return Room(arrays, places)

    def staged(self, arrays: Mapping[str, Array]) -> Room:
        """Return arrays where ranks can read them: a copy of each that does not lie in a block."""
        there = {name: place for name, array in arrays.items() if (place := self._found(array))}
        rest = {name: array for name, array in arrays.items() if name not in there}
        room = self.room(
            {name: (_native(array.dtype), array.shape) for name, array in rest.items()}
        )
        for name, array in rest.items():
            np.copyto(room.arrays[name], array)
        own = {name: arrays[name] for name in there}
        return Room({**own, **room.arrays}, {**there, **room.places})

    def given(self, room: Room) -> dict[str, Array]:
        """Return a room's arrays for the caller to keep: small ones, or too many, are copied."""
        size = sum(array.nbytes for array in room.arrays.values())
        if size > _SMALL and len(self._blocks) < _MOST:
            return dict(room.arrays)
        return {name: array.copy() for name, array in room.arrays.items()}

    def news(self, rooms: Iterable[Room], told: set[int]) -> Message:
        """Return what ranks need to hear with a request that names these rooms.

        Of blocks they were ``told`` of some, by number, which is brought up to date.
        """
        places = [place for room in rooms for place in room.places.values()]
        new = {place.number: place.block for place in places if place.number not in told}
        with self._lock:
            gone, self._gone = self._gone, []
        told.update(new)
        told.difference_update(gone)
        return {"blocks": {number: asdict(block) for number, block in new.items()}, "gone": gone}

    def _taken(self, size: int) -> tuple[_Numbered, Array]:
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
        """Let go of the blocks that nobody uses."""
        with self._lock:
            self._take_back(most=0)

    def _take_back(self, most: int = _MOST_FREE) -> None:
        while self._back:
            self._free.append(self._back.popleft())
        self._owners = {key: own for key, own in self._owners.items() if own[0]() is not None}
        while len(self._free) > most:
            oldest = self._free.pop(0)
            del self._blocks[oldest.number]
            self._gone.append(oldest.number)

    def _found(self, array: Array) -> Place | None:
        """Return where an array lies, None unless that is in a block as ranks read it."""
        owner = self._owners.get(id(array.base))
        if owner is None or owner[0]() is not array.base or not array.nbytes:
            return None
        if not array.flags.c_contiguous or not array.dtype.isnative:
            return None
        assert array.base is not None
        return _place(owner[1], array.ctypes.data - array.base.ctypes.data, array)


def _place(block: _Numbered, offset: int, array: Array) -> Place:
    return Place(block.number, block.shown, offset, name_of(array.dtype), array.shape)


def _native(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    return dtype.newbyteorder("=")
