"""Large pages for blocks of memory: by what the system counts."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensoropt.runtime.session.common_memory import HostBlock
from tensoropt.runtime.session.large_pages import use_large_pages

MIB = 1 << 20
SYSTEM = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(
    not SYSTEM.exists() or "[never]" in SYSTEM.read_text(), reason="the system has no large pages"
)


def large_bytes(block: HostBlock) -> int:
    """Return what is in large pages of the mappings that a block lies in."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, _, rest = line.partition(":")
        if " " in key:
            start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            inside = start < block.address + block.size and block.address < end
        elif inside and key == "AnonHugePages":
            found += int(rest.split()[0]) << 10
    return found


def resident_pages(block: HostBlock) -> int:
    """Return how many pages of a block are in memory."""
    library: Any = ctypes.CDLL(None)
    there = (ctypes.c_ubyte * (block.size // mmap.PAGESIZE))()
    assert not library.mincore(ctypes.c_void_p(block.address), ctypes.c_size_t(block.size), there)
    return sum(page & 1 for page in there)


@pytest.fixture
def block() -> Iterator[HostBlock]:
    """A block with room for three large pages, of which the first 5 MiB were written."""
    memory = mmap.mmap(-1, 8 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = ctypes.c_char.from_buffer(memory)
    ctypes.memset(ctypes.addressof(first), 7, 5 * MIB)
    yield HostBlock(ctypes.addressof(first), len(memory))


def test_what_is_written_gets_large_pages_and_nothing_more(block: HostBlock) -> None:
    before, pages = large_bytes(block), resident_pages(block)
    use_large_pages([block])
    assert large_bytes(block) - before >= 2 * MIB
    assert resident_pages(block) == pages < block.size // mmap.PAGESIZE
    assert ctypes.string_at(block.address, 5 * MIB) == b"\7" * (5 * MIB)


def test_blocks_that_touch_are_one(block: HostBlock) -> None:
    pieces = [
        HostBlock(block.address + at, min(MIB, block.size - at)) for at in range(0, block.size, MIB)
    ]
    before = large_bytes(block)
    use_large_pages(pieces)
    assert large_bytes(block) - before >= 2 * MIB


def test_what_fills_no_large_page_stays(block: HostBlock) -> None:
    before = large_bytes(block)
    use_large_pages([HostBlock(block.address, MIB)])
    assert large_bytes(block) == before
