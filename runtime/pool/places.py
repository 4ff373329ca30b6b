"""Places of arrays in the memory that a pool shares with its ranks, and their encoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensoropt.runtime.support.arena import Block, map_block
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.messages import Message

__all__ = [
    "MappedBlocks",
    "Place",
    "Shape",
    "array_at",
    "pack_texts",
    "unpack_texts",
]

_MOST_KNOWN = 256  # cached arrays per block: sizes may differ in each request

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """The place of an array in a block; a block's ``number`` is unique in its pool."""

    number: int
    block: Block
    offset: int
    dtype: str
    shape: Shape

    def facts(self) -> list[Any]:
        return [self.number, self.offset, self.dtype, self.shape]


def array_at(raw: Array, offset: int, dtype: np.dtype[np.generic], shape: Shape) -> Array:
    """Return the array at ``offset`` of the bytes ``raw``."""
    size = dtype.itemsize * math.prod(shape)
    array: Array = raw[offset : offset + size].view(dtype).reshape(shape)
    return array


class MappedBlocks:
    """The blocks of a pool, mapped into a rank when a message first names them.

    An array in the same place is the same object, as long as its block exists.
    """

    def __init__(self) -> None:
        self._raw: dict[int, Array] = {}
        self._arrays: dict[int, dict[tuple[Any, ...], Array]] = {}

    def update(self, blocks: Mapping[str, Message], gone: list[int]) -> None:
        """Map ``blocks``, by number, and release the blocks ``gone``. Raises `UserError`."""
        for number in gone:
            self._raw.pop(number, None)
            self._arrays.pop(number, None)
        for text, facts in blocks.items():
            if int(text) not in self._raw:
                memory = map_block(Block(**facts), writable=True)
                self._raw[int(text)] = np.frombuffer(memory, np.uint8)

    def arrays(self, places: Mapping[str, list[Any]], *, writable: bool) -> dict[str, Array]:
        """Return the arrays at places, which are encoded by `Place.facts`."""
        return {name: self._array(facts, writable) for name, facts in places.items()}

    def _array(self, facts: list[Any], writable: bool) -> Array:
        number, offset, dtype, shape = facts
        known = self._arrays.setdefault(number, {})
        key = (offset, dtype, *shape, writable)
        if key not in known:
            if len(known) == _MOST_KNOWN:
                known.clear()
            array = array_at(self._raw[number], offset, dtype_of(dtype), tuple(shape))
            array.flags.writeable = writable
            known[key] = array
        return known[key]


def pack_texts(array: Array) -> list[Any]:
    """Return an array of strings as JSON; strings cannot be in shared memory."""
    return [array.shape, [str(text) for text in array.reshape(-1)]]


def unpack_texts(packed: list[Any]) -> Array:
    """Return the array of strings that `pack_texts` encoded."""
    shape, texts = packed
    array: Array = np.array(texts, object).reshape(shape)
    return array
