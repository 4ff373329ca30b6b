"""Large pages for blocks of memory: by what the system counts."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import Perceptron, model_of, tensor, value_info, write_plan
from onnx import helper

from tensoropt.runtime.pool.session import Session
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


def test_weights_of_a_session_that_a_rank_has_alone(perceptron: Perceptron, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weights = [random.standard_normal((1024, 2048), np.float32) for _ in range(2)]
    graphs = [
        model_of(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            [value_info("x", "float32", [2, 1024])],
            [value_info("y", "float32", [2, 2048])],
            {"w": weight},
        )
        for weight in weights
    ]
    ends = [tensor("x", [2, 1024], ["R"])], [tensor("y", [2, 4096], ["S(1)"])]
    plan = write_plan(tmp_path / "plan", perceptron.model, (2,), graphs, *ends)
    x = random.standard_normal((2, 1024), np.float32)
    with Session(plan, threads=1) as session:
        y = session.run({"x": x})["y"]
        found = [Path(f"/proc/{pid}/smaps").read_text() for pid in session.pids]
    np.testing.assert_allclose(y, x @ np.concatenate(weights, axis=1), rtol=1e-3, atol=1e-3)
    for text in found:
        large = [line.split()[1] for line in text.splitlines() if line.startswith("AnonHugePages")]
        assert sum(map(int, large)) >= 4 << 10
