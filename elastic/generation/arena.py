"""The block of memory in which a rank keeps its state, and which other processes map.

It has no name: it is reached through its owner (``/proc/PID/fd/FD``), only by processes of the same
user, and is gone with the last that has it. So nothing is left behind however a job ends, and a
small /dev/shm, as containers have, is no limit.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tensoropt.runtime.device.provider import HostArray, PlacedArray, Provider
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = [
    "Arena",
    "Block",
    "Shared",
    "arrays_in",
    "held_open",
    "mapped",
    "size_of",
    "stamp_in",
    "stamped_size_of",
]

_ALIGNMENT = 64  # bytes of a cache line


@dataclass(frozen=True)
class Block:
    """Memory of another process: descriptor ``fd`` of process ``pid``, ``size`` bytes.

    Of a ``sparse`` one only some pages are there, and the others are not to be made.
    """

    pid: int
    fd: int
    size: int
    sparse: bool = False

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Arena:
    """A block of this process, of zeros at first."""

    def __init__(self, name: str, size: int) -> None:
        self._fd = os.memfd_create(f"tensoropt-{name}", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, max(size, 1))
        self.memory = mmap.mmap(self._fd, max(size, 1))
        self.block = Block(os.getpid(), self._fd, max(size, 1))

    def touch(self) -> None:
        """Have all pages there, so that no later write waits for one."""
        np.frombuffer(self.memory, np.uint8)[:: mmap.PAGESIZE] = 0


class Shared:
    """A rank's state where others can read it: on the CPU the state itself, elsewhere a copy."""

    def __init__(self, plan: TrainingPlan, provider: Provider) -> None:
        self.arena = Arena("state", size_of(plan))
        self.arena.touch()
        self._arrays = arrays_in(self.arena.memory, plan)
        self._is_state = provider.name == "cpu"

    def state(self) -> Mapping[str, PlacedArray] | None:
        """Return the arrays that the rank is to compute with, None where it needs its own."""
        if not self._is_state:
            return None
        return {name: HostArray(array) for name, array in self._arrays.items()}

    def publish(self, held: Held) -> None:
        """Have the block hold what ``held`` holds."""
        if not self._is_state:
            for name, array in self._arrays.items():
                np.copyto(array, held.state[name].get())


def mapped(block: Block) -> mmap.mmap:
    """Return another process's block, to be read; its pages are there at once, unless it is sparse.

    Raises `UserError` where that process has gone.
    """
    try:
        descriptor = held_open(block)
        try:
            flags = mmap.MAP_SHARED | (0 if block.sparse else mmap.MAP_POPULATE)
            return mmap.mmap(descriptor, block.size, flags, mmap.PROT_READ)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UserError(f"state of process {block.pid}: {one_line(error)}") from None


def held_open(block: Block) -> int:
    """Return a descriptor of a block, which keeps it after its owner's end. Raises OSError."""
    return os.open(f"/proc/{block.pid}/fd/{block.fd}", os.O_RDONLY | os.O_CLOEXEC)


def _places(plan: TrainingPlan) -> dict[str, tuple[int, Tensor]]:
    """Return where each tensor of the state lies in a rank's block: the same on every rank."""
    places, start = {}, 0
    for state in plan.state:
        places[state.name] = start, state.tensor
        start += -(-_bytes(state.tensor) // _ALIGNMENT) * _ALIGNMENT
    return places


def _bytes(tensor: Tensor) -> int:
    return int(np.prod(tensor.local_shape(), dtype=np.int64)) * dtype_of(tensor.dtype).itemsize


def size_of(plan: TrainingPlan) -> int:
    """Return how many bytes a rank's state takes in a block."""
    places = _places(plan)
    return max((start + _bytes(tensor) for start, tensor in places.values()), default=0)


def stamped_size_of(plan: TrainingPlan) -> int:
    """Return how many bytes it takes with a stamp behind it."""
    return -(-size_of(plan) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT


def stamp_in(memory: mmap.mmap) -> Array:
    """Return the stamp of a block: the step whose state it has, -1 while that is written."""
    return np.frombuffer(memory, np.int64, 1, len(memory) - _ALIGNMENT)


def arrays_in(memory: mmap.mmap, plan: TrainingPlan) -> Mapping[str, Array]:
    """Return a rank's state in a block, by tensor; arrays that can be read only if it is so."""
    return {
        name: np.frombuffer(
            memory, dtype_of(tensor.dtype), int(np.prod(tensor.local_shape())), start
        ).reshape(tensor.local_shape())
        for name, (start, tensor) in _places(plan).items()
    }
