"""Transfer of boxes between nodes, through Ray's object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from tensoropt.elastic.engines.on_ray.porter import Bounds, TensorBox
from tensoropt.elastic.generation.parts import Part
from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Trip", "travel"]

_LOAD = 16 << 20  # bytes per load
_UNDER_WAY = 8  # concurrent loads: more would fill the object store, which then spills to disk
_SEEN_OFF_S = 5.0


@dataclass(frozen=True)
class Trip:
    """A transfer of ``boxes`` of a rank's state in ``plan``, from its part to a room on a node."""

    origin: Part
    room: Part
    plan: TrainingPlan
    rank: int
    boxes: Sequence[TensorBox]

    def loads(self) -> Iterator[list[TensorBox]]:
        """Yield the boxes in loads; large boxes are sliced along their first dimension."""
        load: list[TensorBox] = []
        size = 0
        sizes = {s.name: dtype_of(s.tensor.dtype).itemsize for s in self.plan.state}
        slices = (part for name, box in self.boxes for part in _slice(name, box, sizes[name]))
        for name, box in slices:
            bytes_ = sizes[name] * _count(box)
            if load and size + bytes_ > _LOAD:
                yield load
                load, size = [], 0
            load.append((name, box))
            size += bytes_
        if load:
            yield load


def _count(box: Bounds) -> int:
    count = 1
    for start, stop in box:
        count *= stop - start
    return count


def _slice(name: str, box: Bounds, itemsize: int) -> Iterator[TensorBox]:
    size = itemsize * _count(box)
    if not box or size <= _LOAD:
        yield name, box
        return
    (start, stop), *rest = box
    rows = max(1, (stop - start) * _LOAD // size)
    for first in range(start, stop, rows):
        yield name, ((first, min(first + rows, stop)), *rest)


def travel(trips: Iterable[Trip], porters: Mapping[str, Any]) -> int:
    """Make the trips; return the number of bytes transferred. Raises `UserError`."""
    under_way: list[Any] = []
    moved = 0
    try:
        for trip in trips:
            origin, room, state = trip.origin, trip.room, (str(trip.plan.folder), trip.rank)
            for load in trip.loads():
                values = porters[origin.node].read.remote(origin.block, *state, load)
                landed = porters[room.node].land.remote(room.block, *state, load, values)
                under_way.append(landed)
                if len(under_way) >= _UNDER_WAY:
                    (done,), under_way = ray.wait(under_way)
                    moved += ray.get(done)
        return moved + int(sum(ray.get(under_way)))
    except RayError as error:
        for landed in under_way:  # Ray logs failures that nobody fetches
            with suppress(RayError):
                ray.get(landed, timeout=_SEEN_OFF_S)
        raise UserError(f"state transfer between nodes failed: {one_line(error)}") from None
