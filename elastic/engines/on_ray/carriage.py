"""Transfer of state between nodes, and copies of snapshots on neighbouring nodes.

A node receives only the boxes that its ranks take and none of its ranks has, each box once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from tensoropt.elastic.engines.on_ray.cluster import short_name
from tensoropt.elastic.engines.on_ray.porter import Bounds, TensorBox, training_plan
from tensoropt.elastic.engines.on_ray.trips import Trip, travel
from tensoropt.elastic.generation.boxes import Slices, holders_of
from tensoropt.elastic.generation.parts import Part, Parts, pieces_to_take
from tensoropt.elastic.generation.places import size_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["RayCarrier", "are_unchanged", "copy_to_neighbours"]

Porters = Mapping[str, Any]
"""The porter of each live node, by the node's id."""

_HERE, _FAR, _COPY, _GONE = 0.0, 1.0, 1e6, 1e9
"""Distances of parts: on the same node, on another node, of copies, of lost parts."""


class RayCarrier:
    """Carries a state to the ranks of the plan in folder ``plan``, which are on ``nodes``.

    Raises `UserError` if some of the state was lost with a node.
    """

    def __init__(self, parts: Parts, plan: str, nodes: Sequence[str], porters: Porters) -> None:
        self.carried_bytes = 0
        self._parts, self._porters = parts, porters
        self._held, self._wanted = training_plan(parts.plan), training_plan(plan)
        self._sources = _sources(parts, porters)
        unique = unique_boxes(self._held, parts)
        self._copied = {rank: {name for name, _ in boxes} for rank, boxes in unique.items()}
        self._trips: list[Trip] = []
        orders: dict[int, Message] = {}
        try:
            for turn, node in enumerate(sorted(set(nodes))):
                ranks = [rank for rank, its in enumerate(nodes) if its == node]
                orders |= dict.fromkeys(ranks, self._reserve(node, ranks, turn))
        except BaseException:
            self.close()
            raise
        self.orders: Sequence[Message] = [orders[rank] for rank in range(len(nodes))]

    def _reserve(self, node: str, ranks: Sequence[int], turn: int) -> Message:
        """Reserve memory on a node for the boxes that its ranks take; return their order."""
        distances = [self._distance(rank, node, turn) for rank in range(len(self._sources))]
        boxes: dict[int, dict[TensorBox, None]] = defaultdict(dict)
        for rank in ranks:
            for name, piece in pieces_to_take(self._held, self._wanted, rank, distances):
                boxes[piece.holder][name, _bounds(piece.theirs)] = None
        blocks: list[dict[str, Any] | None] = [
            part.block.facts() if far == _HERE else None
            for part, far in zip(self._parts.parts, distances, strict=True)
        ]
        for holder, wanted in boxes.items():
            blocks[holder] = self._place(holder, list(wanted), node).block.facts()
        return {"plan": self._parts.plan, "blocks": blocks, "distances": distances}

    def _distance(self, rank: int, node: str, turn: int) -> float:
        """Return the distance to a part.

        Of several holders on other nodes, all ranks of a node choose the same one, so that its box
        arrives once; different nodes choose different ones. Copies are last, in order of rank.
        """
        source, count = self._sources[rank], len(self._sources)
        if source is None:
            return _GONE
        if source is not self._parts.parts[rank]:
            return _COPY + rank
        return _HERE if source.node == node else _FAR + (rank - turn) % count

    def _place(self, holder: int, boxes: list[TensorBox], node: str) -> Part:
        """Return the part in which a node reads boxes: a local one, or a room for their copies."""
        source = self._sources[holder]
        if source is None:
            gone = short_name(self._parts.parts[holder].node)
            raise UserError(f"'{boxes[0][0]}' of rank {holder} was lost with {gone}")
        if source is not self._parts.parts[holder]:
            missing = [name for name, _ in boxes if name not in self._copied[holder]]
            if missing:
                raise UserError(f"'{missing[0]}' of rank {holder}: all nodes that had it are gone")
        if source.node == node:
            return source
        room = room_for(self._porters[node], node, self._held, holder, boxes)
        self._trips.append(Trip(source, room, self._held, holder, boxes))
        return room

    def carry(self) -> None:
        self.carried_bytes = travel(self._trips, self._porters)

    def close(self) -> None:
        for trip in self._trips:
            self._porters[trip.room.node].drop.remote([trip.room.block])
        self._trips = []


def room_for(
    porter: Any, node: str, plan: TrainingPlan, rank: int, boxes: Sequence[TensorBox]
) -> Part:
    """Return memory for boxes on another node, laid out like a rank's block. Raises `UserError`."""
    try:
        block = ray.get(porter.room.remote(str(plan.folder), rank, size_of(plan, rank), boxes))
    except RayError as error:
        raise UserError(f"{short_name(node)}: no room for state: {one_line(error)}") from None
    return Part(block, node)


def _bounds(box: Slices) -> Bounds:
    return tuple((part.start, part.stop) for part in box)


def _sources(parts: Parts, porters: Porters) -> list[Part | None]:
    """Return the source of each part: itself, a copy of its unique boxes, or None if lost."""
    found: list[Part | None] = []
    for rank, part in enumerate(parts.parts):
        copy = parts.copies.get(rank)
        there = copy if copy is not None and copy.node in porters else None
        is_whole = part.node in porters and are_unchanged(parts, [rank], porters)
        found.append(part if is_whole else there)
    return found


def are_unchanged(parts: Parts, ranks: Sequence[int], porters: Porters) -> bool:
    """Return whether ranks' parts are unchanged: the second next snapshot overwrites a snapshot."""
    if parts.step is None:
        return True
    try:
        stamps = [porters[parts.parts[r].node].stamps.remote([parts.parts[r].block]) for r in ranks]
        return all(stamp == [parts.step] for stamp in ray.get(stamps))
    except (RayError, KeyError):
        return False


def unique_boxes(plan: TrainingPlan, parts: Parts) -> dict[int, list[TensorBox]]:
    """Return the boxes that exist on only one node, by a rank that has them."""
    found: dict[int, list[TensorBox]] = defaultdict(list)
    for name, box, ranks in _holders(plan):
        if len({parts.parts[rank].node for rank in ranks}) == 1:
            found[ranks[0]].append((name, box))
    return found


def _holders(plan: TrainingPlan) -> Iterator[tuple[str, Bounds, list[int]]]:
    """Yield each part of each tensor, as a box of the part, and the ranks that have it."""
    for state in plan.state:
        shape, layout = [int(size) for size in state.tensor.shape], state.tensor.layout
        for holders in holders_of(shape, layout):
            last = layout.boxes(shape, holders[0])[-1]
            ranks = [plan.owners(state)[place] for place in holders]
            yield state.name, tuple((0, own.stop) for own in last.part), ranks


def copy_to_neighbours(parts: Parts, porters: Porters) -> Parts | None:
    """Return a snapshot with a copy, on the next node, of each box that only one node has.

    None if a later snapshot overwrote it during the copy, or a node was lost.
    """
    plan = training_plan(parts.plan)
    unique = unique_boxes(plan, parts)
    trips: dict[int, Trip] = {}
    nodes = sorted(porters)
    try:
        for rank, boxes in unique.items():
            part = parts.parts[rank]
            node = next((other for other in nodes if other > part.node), nodes[0])
            room = room_for(porters[node], node, plan, rank, boxes)
            trips[rank] = Trip(part, room, plan, rank, boxes)
        travel(trips.values(), porters)
        is_whole = are_unchanged(parts, list(unique), porters)
    except UserError:
        is_whole = False
    if not is_whole:
        for trip in trips.values():
            porters[trip.room.node].drop.remote([trip.room.block])
        return None
    copies = {rank: trip.room for rank, trip in trips.items()}
    return Parts(parts.plan, parts.parts, copies, parts.step)
