"""State on a CUDA device, on the stand-in of its runtime: what is copied, and which way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from budgets import examples
from cuda_states import WHOLE, Giver, plan_of, values
from drawn_layouts import changes
from hypothesis import given
from stand_ins import environment

from tensoropt.elastic.generation.memory import Move
from tensoropt.elastic.generation.on_cuda import CudaMemory
from tensoropt.elastic.generation.parts import pieces_to_take
from tensoropt.elastic.generation.places import arrays_in, size_of
from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.cuda import StandInProvider, cuda_facts
from tensoropt.runtime.layout.mesh_layout import MeshLayout
from tensoropt.runtime.support.arena import Arena, Block
from tensoropt.runtime.support.errors import UserError


@pytest.fixture(autouse=True, scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have the stand-in for the CUDA runtime; returns the file that sets GPUs apart."""
    apart = tmp_path_factory.mktemp("settings") / "apart"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(apart=apart).items():
            patch.setenv(name, value)
        cudart._library.cache_clear()
        cuda_facts()
        yield apart
    cudart._library.cache_clear()


def filled(plan: SimpleNamespace, shape: Sequence[int], layout: MeshLayout, rank: int) -> Arena:
    """A rank's state in the host's memory."""
    arena = Arena("state", size_of(plan, rank))
    for array in arrays_in(arena.memory, plan, rank).values():
        array[...] = layout.local_slice(values(shape, array.dtype), rank)
    return arena


@examples(40)
@given(changes())
def test_a_rank_has_what_its_layout_says(change: tuple[list[int], MeshLayout, MeshLayout]) -> None:
    shape, held, wanted = change
    theirs, ours = plan_of(shape, held), plan_of(shape, wanted)
    arenas = [filled(theirs, shape, held, rank) for rank in range(held.mesh.size)]
    memory = CudaMemory(ours, 0, StandInProvider(0))
    source = memory.open([arena.block for arena in arenas], theirs)
    assert (source.moved_by, source.why) == ("host", None)
    for rank in range(wanted.mesh.size):
        distances = [source.distance(holder) for holder in range(len(arenas))]
        found = pieces_to_take(theirs, ours, rank, distances)
        source.prepare([Move(*pair) for pair in found], 1)()
        for array in memory.arrays().values():
            expected = wanted.part_of(values(shape, array.dtype), rank)
            np.testing.assert_array_equal(wanted.real(array.get(), shape, rank), expected)
    source.close()
    for arena in arenas:
        os.close(arena.block.fd)
    os.close(memory.block().fd)


@pytest.fixture(scope="module")
def giver() -> Iterator[Giver]:
    giver = Giver()
    yield giver
    giver.end()


def taken(memory: CudaMemory, block: Block) -> tuple[str, str | None]:
    """Take a whole state over, and look at it; returns the way, and why not a shorter one."""
    plan = plan_of([6, 5], WHOLE)
    source = memory.open([block], plan)
    moves = [Move(*pair) for pair in pieces_to_take(plan, plan, 0, [source.distance(0)])]
    source.prepare(moves, 1)()
    source.close()
    for array in memory.arrays().values():
        np.testing.assert_array_equal(array.get(), values([6, 5], array.dtype))
    return source.moved_by, source.why


def test_state_goes_from_device_to_device(giver: Giver) -> None:
    for number, distance in ((0, 1.0), (2, 0.0)):
        memory = CudaMemory(plan_of([6, 5], WHOLE), 0, StandInProvider(number))
        assert memory.open([giver.block], plan_of([6, 5], WHOLE)).distance(0) == distance
        assert taken(memory, giver.block) == ("device", None)


def test_a_gpu_has_its_name_whatever_a_process_is_shown(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    memory = CudaMemory(plan_of([6, 5], WHOLE), 0, StandInProvider(1))
    assert memory.open([giver.block], plan_of([6, 5], WHOLE)).distance(0) == 0.0


def test_devices_that_are_apart_go_by_the_host_and_say_why(giver: Giver, stand_in: Path) -> None:
    memory = CudaMemory(plan_of([6, 5], WHOLE), 0, StandInProvider(0))
    giver.publish()
    stand_in.touch()
    try:
        way, why = taken(memory, giver.block)
    finally:
        stand_in.unlink()
    assert way == "host"
    assert why is not None
    assert why.endswith(
        "02: cudaIpcOpenMemHandle: mapping of buffer object failed (CUDA error 205)"
    )


def test_a_rank_that_ends_meanwhile_has_given_nothing() -> None:
    giver = Giver()
    plan = plan_of([6, 5], WHOLE)
    memory = CudaMemory(plan, 0, StandInProvider(0))
    source = memory.open([giver.block], plan)
    giver.end()
    with pytest.raises(UserError, match=f"process {giver.process.pid} ended while its state"):
        source.prepare([Move(*pair) for pair in pieces_to_take(plan, plan, 0, [0.0])], 1)()
    with pytest.raises(UserError, match=f"memory of process {giver.process.pid}: .*no such file"):
        memory.open([giver.block], plan)


def test_a_snapshot_has_the_tensors_that_are_saved() -> None:
    plan = plan_of([6, 5], WHOLE)
    memory = CudaMemory(plan, 0, StandInProvider(0))
    for array in memory.arrays().values():
        array.put(values([6, 5], array.dtype))
    copies = arrays_in(memory.arena("snapshot", size_of(plan, 0)).memory, plan, 0)
    memory.save(["float32"], copies)
    np.testing.assert_array_equal(copies["float32"], values([6, 5], np.dtype(np.float32)))
    assert not copies["int64"].any()
