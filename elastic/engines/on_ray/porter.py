"""The actor of a node that keeps blocks in memory and copies boxes from and to other nodes."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensoropt.elastic.generation.places import arrays_in, stamp_in
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.arena import Block, map_block, open_descriptor
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Bounds", "Porter", "TensorBox", "training_plan"]

Bounds = tuple[tuple[int, int], ...]
"""Start and stop of a box, by dimension."""

TensorBox = tuple[str, Bounds]
"""A box of a rank's part of a tensor."""


@functools.lru_cache(maxsize=8)
def training_plan(folder: str) -> TrainingPlan:
    """Return the plan in a folder. Raises `UserError`."""
    return TrainingPlan.from_plan(Plan.read(folder))


class Porter:
    """Keeps memory on its node beyond the end of ranks, and reads and writes boxes in it."""

    def __init__(self) -> None:
        self._rooms: dict[int, mmap.mmap] = {}

    def hold(self, blocks: Sequence[Block]) -> list[Block]:
        """Return blocks of this process that share the memory of ranks' blocks. Raises OSError."""
        own = os.getpid()
        return [replace(block, pid=own, fd=open_descriptor(block)) for block in blocks]

    def room(self, folder: str, rank: int, size: int, boxes: Sequence[TensorBox]) -> Block:
        """Return a new block with memory for some boxes of a rank's state."""
        descriptor = os.memfd_create("tensoropt-room", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        self._rooms[descriptor] = memory = mmap.mmap(descriptor, size)
        for array in _boxes_in(memory, folder, rank, boxes):
            array[...] = 0  # allocate the pages before the timed copy
        return Block(os.getpid(), descriptor, size, sparse=True)

    def drop(self, blocks: Iterable[Block]) -> None:
        """Release blocks of this process; ignore blocks of an earlier porter, which are gone."""
        own = os.getpid()
        for block in (block for block in blocks if block.pid == own):
            self._rooms.pop(block.fd, None)
            os.close(block.fd)

    def stamps(self, blocks: Sequence[Block]) -> list[int]:
        """Return the step of each snapshot, -1 for one that is being written."""
        return [int(stamp_in(map_block(replace(block, sparse=True)))[0]) for block in blocks]

    def read(self, block: Block, folder: str, rank: int, boxes: Sequence[TensorBox]) -> list[Array]:
        """Return copies of some boxes of a rank's block on this node."""
        memory = map_block(replace(block, sparse=True))
        return [np.ascontiguousarray(array) for array in _boxes_in(memory, folder, rank, boxes)]

    def land(
        self,
        block: Block,
        folder: str,
        rank: int,
        boxes: Sequence[TensorBox],
        values: Sequence[Array],
    ) -> int:
        """Write boxes from another node into a room; return the number of bytes."""
        targets = _boxes_in(self._rooms[block.fd], folder, rank, boxes)
        for target, array in zip(targets, values, strict=True):
            np.copyto(target, array)
        return sum(array.nbytes for array in values)


def _boxes_in(memory: mmap.mmap, folder: str, rank: int, boxes: Sequence[TensorBox]) -> list[Array]:
    arrays = arrays_in(memory, training_plan(folder), rank)
    return [arrays[name][_index(box)] for name, box in boxes]


def _index(box: Bounds) -> Any:
    """Return an index that selects a box as an array, even of a 0-d tensor."""
    return (*(slice(start, stop) for start, stop in box), ...)
