"""Deduplication of memory blocks with the same contents on several ranks of a machine.

ONNX Runtime packs the weights of products, and changes the layout of weights of convolutions, into
blocks of each process (decision 62). If such blocks are equal on several ranks, all map one copy.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensoropt.runtime.support.arena import Block, open_descriptor

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["HostBlock", "host_blocks", "share_blocks"]

_LEAST = 512 << 10  # bytes; device/host_memory.py makes blocks of this size separate mappings
_PIECE = 1 << 20  # bytes per read
_LOOKED_AT = 64 << 10  # bytes that are hashed to find candidates for the comparison
_HEAD = mmap.PAGESIZE  # bytes of a block that are not shared: they include malloc's header
_IS_MAPPED, _FLAGS = 2, 7  # malloc.c, the field after the size of the previous block
_FIXED = 0x10  # MAP_FIXED of mman.h

_Key = tuple[int, bytes, int]
"""The size of a block, a digest of its beginning, and the number of earlier blocks with both."""


class HostBlock(NamedTuple):
    """A block of the C library that is a separate mapping: whole pages from ``address``."""

    address: int
    size: int


def host_blocks() -> set[HostBlock]:
    """Return the large blocks of this process; empty on other systems or C libraries."""
    found: set[HostBlock] = set()
    with suppress(OSError), Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for start, end in _anonymous_mappings():
            found.update(_walk_blocks(memory.fileno(), start, end))
    return found


def _anonymous_mappings() -> list[tuple[int, int]]:
    """Return the bounds of anonymous mappings; adjacent mappings are merged."""
    found: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, access, _, _, inode, *name = line.split()
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if access == "rw-p" and inode == "0" and not name:
            first = found.pop()[0] if found and found[-1][1] == start else start
            found.append((first, end))
    return found


def _walk_blocks(memory: int, start: int, end: int) -> Iterator[HostBlock]:
    """Yield the consecutive blocks from ``start``."""
    while end - start >= _LEAST:
        word = int.from_bytes(os.pread(memory, 8, start + 8), "little")
        size = word & ~_FLAGS
        if not word & _IS_MAPPED or size % mmap.PAGESIZE or not _HEAD < size <= end - start:
            return
        if size >= _LEAST:
            yield HostBlock(start, size)
        start += size


def share_blocks(comm: MPI.Comm, blocks: Iterable[HostBlock]) -> None:
    """Share blocks with the same bytes among the ranks of ``comm`` on one machine.

    A collective; each rank passes its own ``blocks``, which must not be written during the call.
    Pages are copied on write, so later writes are private. A rank that cannot access another's
    memory, for example in a separate container, keeps its blocks.
    """
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        if here.size > 1:
            _share(here, _key_blocks(sorted(blocks)))
    finally:
        here.Free()


def _key_blocks(blocks: Iterable[HostBlock]) -> dict[_Key, HostBlock]:
    """Return blocks by keys that are equal for equal blocks of several ranks."""
    keyed: dict[_Key, HostBlock] = {}
    times = Counter[tuple[int, bytes]]()
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for block in blocks:
            with suppress(OSError):  # the block has been freed
                start = next(_pieces(memory.fileno(), block))[1][:_LOOKED_AT]
                seen = block.size, hashlib.blake2b(start, digest_size=16).digest()
                keyed[*seen, times[seen]] = block
                times[seen] += 1
    return keyed


def _pieces(memory: int, block: HostBlock) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes after the head of a block, with their offsets in it. Raises OSError."""
    for at in range(_HEAD, block.size, _PIECE):
        size = min(_PIECE, block.size - at)
        piece = os.pread(memory, size, block.address + at)
        if len(piece) != size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        yield at, piece


def _share(here: MPI.Comm, own: Mapping[_Key, HostBlock]) -> None:
    """Replace each block that several ranks may have by the first rank's block."""
    holders: dict[_Key, list[int]] = {}
    for rank, keys in enumerate(here.allgather(list(own))):
        for key in keys:
            holders.setdefault(key, []).append(rank)
    owners = {key: ranks[0] for key, ranks in holders.items() if len(ranks) > 1}
    if not owners:
        return
    places, common = _places(owners), own.keys() & owners.keys()
    descriptor = os.memfd_create("tensoropt-weights", os.MFD_CLOEXEC)
    try:
        with suppress(OSError):  # out of memory: a block that was not copied is not mapped
            for key in common:
                if owners[key] == here.rank:
                    _publish(own[key], descriptor, places[key])
        sources = here.allgather(_Source.from_descriptor(descriptor))
        for rank in sorted({owners[key] for key in common} - {here.rank}):
            theirs = {own[key]: places[key] for key in common if owners[key] == rank}
            with suppress(OSError):
                sources[rank].take(theirs)
        here.Barrier()
    finally:
        os.close(descriptor)


def _places(owners: Mapping[_Key, int]) -> dict[_Key, int]:
    """Return the offset of each block in its owner's shared memory."""
    places, ends = dict[_Key, int](), Counter[int]()
    for key, owner in owners.items():
        places[key] = ends[owner]
        ends[owner] += key[0]
    return places


def _publish(block: HostBlock, descriptor: int, place: int) -> None:
    """Copy a block to shared memory, and map the copy in place of the block to save memory."""
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for at, piece in _pieces(memory.fileno(), block):
            if os.pwrite(descriptor, piece, place + at) != len(piece):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _map(block, descriptor, place)


class _Source(NamedTuple):
    """The shared memory of a rank, with its device and inode for identification."""

    block: Block
    device: int
    inode: int

    @classmethod
    def from_descriptor(cls, descriptor: int) -> _Source:
        facts = os.fstat(descriptor)
        block = Block(os.getpid(), descriptor, facts.st_size)
        return cls(block, facts.st_dev, facts.st_ino)

    def take(self, wanted: Mapping[HostBlock, int]) -> None:
        """Map this memory in place of equal blocks, at their offsets. Raises OSError."""
        descriptor = open_descriptor(self.block)
        try:
            facts = os.fstat(descriptor)
            if (facts.st_dev, facts.st_ino) != (self.device, self.inode):
                return  # a process in another container has the same process id
            with Path("/proc/self/mem").open("rb", buffering=0) as memory:
                for block, place in wanted.items():
                    pieces = _pieces(memory.fileno(), block)
                    if all(os.pread(descriptor, len(b), place + at) == b for at, b in pieces):
                        _map(block, descriptor, place)
        finally:
            os.close(descriptor)


def _map(block: HostBlock, descriptor: int, place: int) -> None:
    """Replace the pages of a block except its head by pages of a file from ``place``.

    Because the block then has two mappings, mremap fails and the C library copies it to move or
    grow it. A single mapping would grow beyond the end of the file.
    """
    library: Any = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    start, size = block.address + _HEAD, block.size - _HEAD
    access = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _FIXED
    if library.mmap(start, size, access, flags, descriptor, place + _HEAD) != start:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
