"""Anonymous host memory that a rank writes and other processes map.

A block has no name: processes of the same user reach it through its owner (``/proc/PID/fd/FD``).
The kernel frees it once the last process closes it. So nothing leaks however a job ends, and a
small /dev/shm, as in containers, is no limit.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tensoropt.runtime.support.errors import UserError, cause_of

__all__ = ["CACHE_LINE_BYTES", "Arena", "Block", "address_of", "map_block", "open_descriptor"]

CACHE_LINE_BYTES = 64


@dataclass(frozen=True)
class Block:
    """Memory of another process: descriptor ``fd`` of process ``pid``, ``size`` bytes.

    A ``sparse`` block has only some of its pages, and readers must not allocate the others. If the
    state is in the memory of a device, ``device`` describes how to reach it there.
    """

    pid: int
    fd: int
    size: int
    sparse: bool = False
    device: dict[str, str] | None = None

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Arena:
    """A zero-initialised block of this process."""

    def __init__(self, name: str, size: int) -> None:
        self._fd = os.memfd_create(f"tensoropt-{name}", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, max(size, 1))
        self.memory = mmap.mmap(self._fd, max(size, 1))
        self.block = Block(os.getpid(), self._fd, max(size, 1))

    def close(self) -> None:
        """Prevent new mappings; the memory is freed with its last mapping."""
        os.close(self._fd)

    def touch(self) -> None:
        """Allocate all pages, so that no later write has a page fault."""
        np.frombuffer(self.memory, np.uint8)[:: mmap.PAGESIZE] = 0


def map_block(block: Block, *, writable: bool = False) -> mmap.mmap:
    """Map the block of another process, read-only unless ``writable``.

    All pages are mapped immediately, unless the block is sparse. Raises `UserError` if the owner
    has ended.
    """
    try:
        descriptor = open_descriptor(block, os.O_RDWR if writable else os.O_RDONLY)
        try:
            flags = mmap.MAP_SHARED | (0 if block.sparse else mmap.MAP_POPULATE)
            access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            return mmap.mmap(descriptor, block.size, flags, access)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UserError(f"memory of process {block.pid}: {cause_of(error)}") from None


def open_descriptor(block: Block, access: int = os.O_RDONLY) -> int:
    """Return a descriptor that keeps a block alive after its owner ends. Raises OSError."""
    return os.open(f"/proc/{block.pid}/fd/{block.fd}", access | os.O_CLOEXEC)


def address_of(memory: mmap.mmap) -> int:
    """Return the address of a mapped block in this process."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)
