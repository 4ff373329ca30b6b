"""State in the host's memory: what is copied, by one thread and by several."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from budgets import examples
from cuda_states import plan_of, values
from drawn_layouts import changes
from hypothesis import given

from tensoropt.elastic.generation.memory import Move
from tensoropt.elastic.generation.on_host import HostMemory
from tensoropt.elastic.generation.parts import pieces_to_take
from tensoropt.runtime.layout.mesh_layout import MeshLayout, parse_layout

_LARGE = (3, 1 << 20, 2)  # 24 MB of float32: more than a thread copies at a time


def _taken(
    shape: Sequence[int], held: MeshLayout, wanted: MeshLayout, rank: int, threads: int
) -> None:
    """Have a rank take its part of what others hold, and look at every element."""
    theirs, ours = plan_of(shape, held), plan_of(shape, wanted)
    givers = [_filled(theirs, shape, held, one) for one in range(held.mesh.size)]
    memory = HostMemory(ours, rank)
    source = memory.open([giver.block() for giver in givers], theirs)
    found = pieces_to_take(theirs, ours, rank, [0.0] * len(givers))
    copy = source.prepare([Move(*pair) for pair in found], threads)
    assert not any(array.get().any() for array in memory.arrays().values()), "copied too early"
    copy()
    source.close()
    for array in memory.arrays().values():
        expected = wanted.local_slice(values(shape, array.dtype), rank)
        np.testing.assert_array_equal(array.get(), expected)
    for one in (*givers, memory):
        os.close(one.block().fd)


def _filled(
    plan: SimpleNamespace, shape: Sequence[int], layout: MeshLayout, rank: int
) -> HostMemory:
    memory = HostMemory(plan, rank)
    for array in memory.arrays().values():
        array.put(layout.local_slice(values(shape, array.dtype), rank))
    return memory


@examples(40)
@given(changes())
def test_a_rank_has_what_its_layout_says(change: tuple[list[int], MeshLayout, MeshLayout]) -> None:
    shape, held, wanted = change
    for rank in range(wanted.mesh.size):
        _taken(shape, held, wanted, rank, 1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_large_tensors_are_shared_out(threads: int) -> None:
    held, wanted = parse_layout(["S(1)"], [2]), parse_layout(["R"], [2])
    _taken(_LARGE, held, wanted, 0, threads)


def test_blocks_are_let_go_after_the_copy() -> None:
    whole = parse_layout(["R"], [1])
    plan = plan_of((8, 4), whole)
    giver, memory = _filled(plan, (8, 4), whole, 0), HostMemory(plan, 0)
    before = _mappings()
    source = memory.open([giver.block()], plan)
    moves = [Move(*pair) for pair in pieces_to_take(plan, plan, 0, [0.0])]
    copy = source.prepare(moves, 1)
    assert _mappings() == before + 1
    copy()
    source.close()
    end = time.monotonic() + 10
    while _mappings() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert _mappings() == before
    for one in (giver, memory):
        os.close(one.block().fd)


def _mappings() -> int:
    return Path("/proc/self/maps").read_text(encoding="ascii").count("memfd:tensoropt")
