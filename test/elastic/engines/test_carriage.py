"""What goes from node to node, and what is left of a state when nodes go: with porters that are
called here, in place of actors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families_of_sixths import sixths
from made_families import FLAGS, perceptron, write

from tensoropt.elastic.generation.parts import Part, Parts, pieces_to_take
from tensoropt.elastic.generation.places import arrays_in, stamp_in, stamped_size_of
from tensoropt.runtime.layout.mesh_layout import gather_global
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.arena import Arena, Block, map_block
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan

ray = pytest.importorskip("ray")
carriage = pytest.importorskip("tensoropt.elastic.engines.on_ray.carriage")
trips = pytest.importorskip("tensoropt.elastic.engines.on_ray.trips")
porter = pytest.importorskip("tensoropt.elastic.engines.on_ray.porter")


@dataclass
class Called:
    """An actor whose methods are called at once."""

    actor: Any

    def __getattr__(self, name: str) -> Any:
        return Remote(getattr(self.actor, name))


@dataclass
class Remote:
    remote: Any


@pytest.fixture(autouse=True)
def _without_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda found: found)
    monkeypatch.setattr(ray, "wait", lambda found: (found[:1], found[1:]))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sixths(tmp_path_factory.mktemp("carriage"))


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family for 1, 2 and 4 devices, with 2 stages on several."""
    folder = tmp_path_factory.mktemp("staged")
    flags = ("--loss", "mse:y,t", "--optimizer", "adam", *FLAGS, "--devices", "4")
    stages = ("--stages", "2", "--micro-batches", "2")
    write(perceptron(folder), *flags, *stages, "-o", folder / "family")
    return folder / "family"


class State:
    """A state that ranks of a plan hold, each on a node; whole ones are equal on all plans."""

    def __init__(self, folder: Path, nodes: str, step: int | None = None) -> None:
        self.plan = TrainingPlan.from_plan(Plan.read(folder))
        self.arenas = [
            Arena("test", stamped_size_of(self.plan, rank)) for rank in range(len(nodes))
        ]
        draw = np.random.default_rng(0)
        whole = {
            state.name: draw.standard_normal([int(n) for n in state.tensor.shape])
            for state in self.plan.state
        }
        for rank, arena in enumerate(self.arenas):
            stamp_in(arena.memory)[0] = step or 0
            arrays = arrays_in(arena.memory, self.plan, rank)
            for state in self.plan.state_of(rank):
                place = self.plan.place(rank)
                arrays[state.name][...] = state.tensor.layout.local_slice(whole[state.name], place)
        blocks = [arena.block for arena in self.arenas]
        parts = tuple(Part(block, node) for block, node in zip(blocks, nodes, strict=True))
        self.parts = Parts(str(folder), parts, step=step)


@pytest.fixture
def porters() -> Iterator[dict[str, Any]]:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    found = {node: Called(porter.Porter()) for node in "abc"}
    yield found
    assert all(not one.actor._rooms for one in found.values()), "rooms that nobody let go of"
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before + 8


def taken(carrier: Any, plan: Path, rank: int) -> dict[str, Any]:
    """Return what a rank has after it did what it is told."""
    order = carrier.orders[rank]
    held, wanted = (TrainingPlan.from_plan(Plan.read(folder)) for folder in (order["plan"], plan))
    arrays = {
        state.name: np.full(state.tensor.local_shape(), np.nan, np.float32)
        for state in wanted.state_of(rank)
    }
    for name, piece in pieces_to_take(held, wanted, rank, order["distances"]):
        block = Block(**order["blocks"][piece.holder])
        source = arrays_in(map_block(block), held, piece.holder)[name]
        arrays[name][(*piece.mine, ...)] = source[(*piece.theirs, ...)]
    return arrays


def check_taken(carrier: Any, state: State, plan: Path, ranks: int) -> None:
    """See that ranks of a plan have the state that those of another one held."""
    wanted = TrainingPlan.from_plan(Plan.read(plan))
    found = [taken(carrier, plan, rank) for rank in range(ranks)]
    held = [arrays_in(arena.memory, state.plan, rank) for rank, arena in enumerate(state.arenas)]
    theirs = {one.name: one for one in state.plan.state}
    for one in wanted.state:
        new, old = joined(wanted, one, found), joined(state.plan, theirs[one.name], held)
        np.testing.assert_array_equal(new, old)


def joined(plan: TrainingPlan, state: Any, arrays: Sequence[Mapping[str, Any]]) -> Any:
    """Return a tensor, from the parts of the ranks that own it."""
    parts = {place: arrays[rank][state.name] for place, rank in enumerate(plan.owners(state))}
    return gather_global(parts, state.tensor.layout)


@pytest.mark.parametrize(
    ("before", "old", "after", "new"),
    [
        ("2", "ab", "3", "abc"),
        ("3", "aab", "2", "cc"),
        ("3", "abc", "1", "b"),
        ("1", "a", "3", "bbc"),
    ],
)
def test_each_rank_has_its_part_whatever_node_it_comes_from(
    family: Path, porters: dict[str, Any], before: str, old: str, after: str, new: str
):
    state = State(family / before, old)
    carrier = carriage.RayCarrier(state.parts, str(family / after), new, porters)
    carrier.carry()
    check_taken(carrier, state, family / after, len(new))
    assert carrier.carried_bytes > 0
    carrier.close()


@pytest.mark.parametrize(
    ("before", "old", "after", "new"),
    [("2", "ab", "1", "c"), ("1", "a", "4", "abbc"), ("4", "abca", "2", "cb")],
)
def test_stages_have_their_own_part_of_the_state(
    staged: Path, porters: dict[str, Any], before: str, old: str, after: str, new: str
):
    state = State(staged / before, old)
    sizes = {arena.block.size for arena in state.arenas}
    assert (len(sizes) > 1) == (before != "1")
    carrier = carriage.RayCarrier(state.parts, str(staged / after), new, porters)
    carrier.carry()
    check_taken(carrier, state, staged / after, len(new))
    carrier.close()


def test_nothing_is_carried_on_one_node(family: Path, porters: dict[str, Any]):
    state = State(family / "2", "aa")
    carrier = carriage.RayCarrier(state.parts, str(family / "3"), "aaa", porters)
    carrier.carry()
    assert carrier.carried_bytes == 0
    check_taken(carrier, state, family / "3", 3)


def test_a_node_gets_what_several_of_its_ranks_take_once(family: Path, porters: dict[str, Any]):
    state = State(family / "1", "a")
    bytes_ = []
    for new in ("bbb", "bcc"):
        carrier = carriage.RayCarrier(state.parts, str(family / "3"), new, porters)
        carrier.carry()
        bytes_.append(carrier.carried_bytes)
        carrier.close()
    whole = sum(
        arrays.nbytes for arrays in arrays_in(state.arenas[0].memory, state.plan, 0).values()
    )
    assert bytes_[0] == whole
    assert bytes_[1] >= whole


def test_large_boxes_go_in_loads(
    family: Path, porters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trips, "_LOAD", 1000)
    state = State(family / "2", "ab")
    carrier = carriage.RayCarrier(state.parts, str(family / "3"), "ccc", porters)
    (trip, *_) = carrier._trips
    assert all(sum(map(_bytes, load)) <= 1000 for load in trip.loads())
    carrier.carry()
    check_taken(carrier, state, family / "3", 3)
    carrier.close()


def _bytes(box: Any) -> int:
    return 4 * int(np.prod([stop - start for start, stop in box[1]], dtype=int))


@pytest.mark.parametrize("lost", "abc")
def test_a_snapshot_outlives_any_one_node(family: Path, porters: dict[str, Any], lost: str):
    state = State(family / "3", "abc", step=20)
    snapshot = carriage.copy_to_neighbours(state.parts, porters)
    assert {part.node for part in snapshot.copies.values()} == {"a", "b", "c"}
    rest = {node: one for node, one in porters.items() if node != lost}
    new = "".join(rest)
    carrier = carriage.RayCarrier(snapshot, str(family / "2"), new, rest)
    carrier.carry()
    check_taken(carrier, state, family / "2", 2)
    carrier.close()
    drop_copies(snapshot, porters)


def drop_copies(snapshot: Parts, porters: dict[str, Any]) -> None:
    for part in snapshot.copies.values():
        porters[part.node].drop.remote([part.block])


def test_what_two_nodes_had_is_gone_with_both(family: Path, porters: dict[str, Any]):
    snapshot = carriage.copy_to_neighbours(State(family / "3", "abc", step=20).parts, porters)
    with pytest.raises(UserError, match=r"of rank 1 was lost with node-b"):
        carriage.RayCarrier(snapshot, str(family / "1"), "a", {"a": porters["a"]})
    drop_copies(snapshot, porters)


def test_what_other_nodes_have_is_not_copied(family: Path, porters: dict[str, Any]):
    state = State(family / "2", "aa", step=20)
    shared = carriage.unique_boxes(state.plan, state.parts)
    assert {name for boxes in shared.values() for name, _ in boxes} == {
        one.name for one in state.plan.state
    }
    apart = State(family / "2", "ab", step=20)
    for name, _, ranks in carriage._holders(apart.plan):
        unique = {found for boxes in carriage.unique_boxes(apart.plan, apart.parts).values()
                  for found, _ in boxes}  # fmt: skip
        assert (name in unique) == (len(ranks) == 1)


@pytest.mark.parametrize("stamp", [-1, 60])
def test_a_snapshot_that_is_overwritten_meanwhile_is_none(
    family: Path, porters: dict[str, Any], stamp: int
):
    state = State(family / "2", "ab", step=20)
    stamp_in(state.arenas[1].memory)[0] = stamp
    assert carriage.copy_to_neighbours(state.parts, porters) is None
    with pytest.raises(UserError, match="of rank 1 was lost with node-b"):
        carriage.RayCarrier(state.parts, str(family / "1"), "a", porters)


def test_parts_that_are_held_outlive_those_who_made_them(porters: dict[str, Any]):
    arena = Arena("test", 100)
    arena.memory[:4] = b"seen"
    (held,) = porters["a"].hold.remote([arena.block])
    os.close(arena.block.fd)
    assert map_block(held)[:4] == b"seen"
    porters["a"].drop.remote([held])
    with pytest.raises(UserError):
        map_block(held)
