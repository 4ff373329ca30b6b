"""Memory that the ranks of a machine have in common, of blocks that each of them filled alike.

ONNX Runtime packs the weights of products, and lays those of convolutions out anew, in blocks of
each process (decision 62). Where these are the same on several ranks, all of them map one copy.
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

from tensoropt.runtime.support.arena import Block, held_open

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["HostBlock", "host_blocks", "share_blocks"]

_LEAST = 512 << 10  # bytes; device/host_memory.py has blocks of that size be mappings of their own
_PIECE = 1 << 20  # bytes that are read at once
_LOOKED_AT = 64 << 10  # bytes that tell which blocks are worth being compared
_HEAD = mmap.PAGESIZE  # bytes of a block that stay its own: the C library's notes are among them
_IS_MAPPED, _FLAGS = 2, 7  # malloc.c, the field behind the size of the block before
_FIXED = 0x10  # MAP_FIXED of mman.h

_Key = tuple[int, bytes, int]
"""The size of a block, a digest of how it begins, and how many blocks before it have both."""


class HostBlock(NamedTuple):
    """A block of the C library that is a mapping of its own: whole pages from ``address`` on."""

    address: int
    size: int


def host_blocks() -> set[HostBlock]:
    """Return the large blocks of this process; none where the system or C library is another."""
    found: set[HostBlock] = set()
    with suppress(OSError), Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for start, end in _anonymous():
            found.update(_chained(memory.fileno(), start, end))
    return found


def _anonymous() -> list[tuple[int, int]]:
    """Return the bounds of memory that is no file's; mappings that touch are one."""
    found: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, access, _, _, inode, *name = line.split()
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if access == "rw-p" and inode == "0" and not name:
            first = found.pop()[0] if found and found[-1][1] == start else start
            found.append((first, end))
    return found


def _chained(memory: int, start: int, end: int) -> Iterator[HostBlock]:
    """Yield blocks that lie one after another from ``start``, as far as there are any."""
    while end - start >= _LEAST:
        word = int.from_bytes(os.pread(memory, 8, start + 8), "little")
        size = word & ~_FLAGS
        if not word & _IS_MAPPED or size % mmap.PAGESIZE or not _HEAD < size <= end - start:
            return
        if size >= _LEAST:
            yield HostBlock(start, size)
        start += size


def share_blocks(comm: MPI.Comm, blocks: Iterable[HostBlock]) -> None:
    """Let blocks of the same bytes be one, among the ranks of ``comm`` on one machine.

    All ranks call this, each with its own ``blocks``, which nobody writes to meanwhile. What is
    written later nobody else sees: the page becomes the rank's own again. Where a rank cannot reach
    the memory of another, as in a container of its own, it keeps what it has.
    """
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        if here.size > 1:
            _share(here, _keyed(sorted(blocks)))
    finally:
        here.Free()


def _keyed(blocks: Iterable[HostBlock]) -> dict[_Key, HostBlock]:
    """Return blocks by what may tell that another rank has the same."""
    keyed: dict[_Key, HostBlock] = {}
    times = Counter[tuple[int, bytes]]()
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for block in blocks:
            with suppress(OSError):  # it has been freed
                start = next(_pieces(memory.fileno(), block))[1][:_LOOKED_AT]
                seen = block.size, hashlib.blake2b(start, digest_size=16).digest()
                keyed[*seen, times[seen]] = block
                times[seen] += 1
    return keyed


def _pieces(memory: int, block: HostBlock) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes behind the head of a block, with their places in it. Raises OSError."""
    for at in range(_HEAD, block.size, _PIECE):
        size = min(_PIECE, block.size - at)
        piece = os.pread(memory, size, block.address + at)
        if len(piece) != size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        yield at, piece


def _share(here: MPI.Comm, own: Mapping[_Key, HostBlock]) -> None:
    """Let each block be that of the first rank that has it, where another one may have it too."""
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
        with suppress(OSError):  # a machine without room for it: what is not there, nobody maps
            for key in common:
                if owners[key] == here.rank:
                    _give(own[key], descriptor, places[key])
        sources = here.allgather(_Source.of(descriptor))
        for rank in sorted({owners[key] for key in common} - {here.rank}):
            theirs = {own[key]: places[key] for key in common if owners[key] == rank}
            with suppress(OSError):
                sources[rank].take(theirs)
        here.Barrier()
    finally:
        os.close(descriptor)


def _places(owners: Mapping[_Key, int]) -> dict[_Key, int]:
    """Return where each block lies in the memory of its owner."""
    places, ends = dict[_Key, int](), Counter[int]()
    for key, owner in owners.items():
        places[key] = ends[owner]
        ends[owner] += key[0]
    return places


def _give(block: HostBlock, descriptor: int, place: int) -> None:
    """Copy a block to where others find it, and map it there, so that it is not there twice."""
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for at, piece in _pieces(memory.fileno(), block):
            if os.pwrite(descriptor, piece, place + at) != len(piece):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _map(block, descriptor, place)


def _is_same(block: HostBlock, descriptor: int, place: int) -> bool:
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        pieces = _pieces(memory.fileno(), block)
        return all(os.pread(descriptor, len(own), place + at) == own for at, own in pieces)


class _Source(NamedTuple):
    """Where the memory of a rank is found, and what tells it from others of that number."""

    block: Block
    device: int
    inode: int

    @classmethod
    def of(cls, descriptor: int) -> _Source:
        facts = os.fstat(descriptor)
        block = Block(os.getpid(), descriptor, facts.st_size)
        return cls(block, facts.st_dev, facts.st_ino)

    def take(self, wanted: Mapping[HostBlock, int]) -> None:
        """Map it in the place of blocks that are the same from their place in it on. Raises
        OSError."""
        descriptor = held_open(self.block)
        try:
            facts = os.fstat(descriptor)
            if (facts.st_dev, facts.st_ino) != (self.device, self.inode):
                return  # of a process of another container with the same number
            for block, place in wanted.items():
                if _is_same(block, descriptor, place):
                    _map(block, descriptor, place)
        finally:
            os.close(descriptor)


def _map(block: HostBlock, descriptor: int, place: int) -> None:
    """Put the pages of a file, from ``place`` on, in the place of those of a block but its head.

    With two kinds of pages the block cannot be moved or grown as one, only copied: the C library
    would map more than the file has.
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
