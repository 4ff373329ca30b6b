"""Large pages for memory that every run reads from end to end: the weights of a session.

A processor keeps the addresses of few pages, and fetches ahead within a page alone. Of weights in
small pages each run looks up all addresses anew, and waits at the begin of each (decision 64).
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.session.common_memory import HostBlock, own_memory
from tensoropt.runtime.support.dtypes import Array

__all__ = ["use_large_pages"]

_COLLAPSE = 25  # MADV_COLLAPSE of mman.h: Linux 6.1 and later
_SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")


def use_large_pages(blocks: Collection[HostBlock]) -> None:
    """Put ``blocks`` into large pages, as far as they fill some and are this process's own.

    Pages that nothing was written to stay away, so the process takes no more memory than before.
    Nothing changes where the system has no large pages, or is told to have none.
    """
    size = _large_page_bytes()
    if not size or not blocks:
        return
    library: Any = ctypes.CDLL(None)
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    for start, end in _meetings(_joined(blocks), own_memory()):
        first = -(-start // size) * size
        for at, count in _runs(_written(library, first, max(end - first, 0) // size, size)):
            library.madvise(first + at * size, count * size, _COLLAPSE)


def _written(library: Any, address: int, count: int, size: int) -> Array:
    """Return of each of ``count`` large pages whether all small ones in it are there."""
    there = np.zeros((count, size // mmap.PAGESIZE), np.uint8)
    if library.mincore(address, count * size, there.ctypes.data):
        there[...] = 0  # somebody gave it back meanwhile
    return np.asarray((there & 1).all(axis=1))


def _runs(flags: Array) -> Iterator[tuple[int, int]]:
    """Yield where flags are set, and how many in a row."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    for begin, end in edges.reshape(-1, 2).tolist():
        yield begin, end - begin


def _large_page_bytes() -> int:
    """Return the size of a large page, 0 where there are none."""
    with suppress(OSError):
        if "[never]" not in (_SYSTEM / "enabled").read_text():
            return int((_SYSTEM / "hpage_pmd_size").read_text())
    return 0


def _joined(blocks: Iterable[HostBlock]) -> list[tuple[int, int]]:
    """Return the bounds of blocks; those that touch are one."""
    found: list[tuple[int, int]] = []
    for address, size in sorted(blocks):
        first = found.pop()[0] if found and found[-1][1] == address else address
        found.append((first, address + size))
    return found


def _meetings(
    some: Iterable[tuple[int, int]], others: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the bounds of what lies both in ``some`` ranges and in ``others``."""
    for first, last in some:
        for start, end in others:
            if max(first, start) < min(last, end):
                yield max(first, start), min(last, end)
