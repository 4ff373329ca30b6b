"""Blocks of the host's memory that a rank writes and other processes map.

It has no name: it is reached through its owner (``/proc/PID/fd/FD``), only by processes of the same
user, and is gone with the last that has it. So nothing is left behind however a job ends, and a
small /dev/shm, as containers have, is no limit.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tensoropt.runtime.support.errors import UserError, cause_of

__all__ = ["Arena", "Block", "address_of", "held_open", "mapped"]


@dataclass(frozen=True)
class Block:
    """Memory of another process: descriptor ``fd`` of process ``pid``, ``size`` bytes.

    Of a ``sparse`` one only some pages are there, and the others are not to be made. Where the
    state is in a device's memory, ``device`` says how to reach it there.
    """

    pid: int
    fd: int
    size: int
    sparse: bool = False
    device: dict[str, str] | None = None

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Arena:
    """A block of this process, of zeros at first."""

    def __init__(self, name: str, size: int) -> None:
        self._fd = os.memfd_create(f"tensoropt-{name}", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, max(size, 1))
        self.memory = mmap.mmap(self._fd, max(size, 1))
        self.block = Block(os.getpid(), self._fd, max(size, 1))

    def close(self) -> None:
        """Let nobody map it any more; it goes with the last that has mapped it."""
        os.close(self._fd)

    def touch(self) -> None:
        """Have all pages there, so that no later write waits for one."""
        np.frombuffer(self.memory, np.uint8)[:: mmap.PAGESIZE] = 0


def mapped(block: Block, *, writable: bool = False) -> mmap.mmap:
    """Return another process's block, to be read unless it is to be ``writable``.

    Its pages are there at once, unless it is sparse. Raises `UserError` where its owner has gone.
    """
    try:
        descriptor = held_open(block, os.O_RDWR if writable else os.O_RDONLY)
        try:
            flags = mmap.MAP_SHARED | (0 if block.sparse else mmap.MAP_POPULATE)
            access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            return mmap.mmap(descriptor, block.size, flags, access)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UserError(f"memory of process {block.pid}: {cause_of(error)}") from None


def held_open(block: Block, access: int = os.O_RDONLY) -> int:
    """Return a descriptor of a block, which keeps it after its owner's end. Raises OSError."""
    return os.open(f"/proc/{block.pid}/fd/{block.fd}", access | os.O_CLOEXEC)


def address_of(memory: mmap.mmap) -> int:
    """Return where a block is mapped in this process."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)
