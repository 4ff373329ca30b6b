"""The points of a frontier as every report sees them, and the ones worth a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tensoropt.compiler.choices import check_known
from tensoropt.compiler.errors import UserError

__all__ = [
    "FIELDS",
    "Point",
    "as_dict",
    "fastest",
    "knee",
    "leanest",
    "marks",
    "mesh_name",
    "pick_point",
    "recompute_of",
]

FIELDS = (
    "time_s",
    "compute_s",
    "communication_s",
    "memory_bytes",
    "static_bytes",
    "transient_bytes",
)


def mesh_name(mesh: tuple[int, ...]) -> str:
    """Return a mesh as flags and reports write it, such as 2x4."""
    return "x".join(map(str, mesh))


class Point(Protocol):
    """One trade-off between time per step and memory per device."""

    @property
    def index(self) -> int: ...
    @property
    def mesh(self) -> tuple[int, ...]: ...
    @property
    def time_s(self) -> float: ...
    @property
    def compute_s(self) -> float: ...
    @property
    def communication_s(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def static_bytes(self) -> int: ...
    @property
    def transient_bytes(self) -> int: ...


def recompute_of(point: Point) -> str | None:
    """Return what a training step computes anew in its backward pass; ``None`` for inference."""
    return getattr(point, "recompute", None)


_P = TypeVar("_P", bound=Point)


def fastest(points: Sequence[_P]) -> _P:
    """Return the point of least time; among equals the one of least memory."""
    return min(points, key=lambda point: (point.time_s, point.memory_bytes, point.index))


def leanest(points: Sequence[_P]) -> _P:
    """Return the point of least memory; among equals the one of least time."""
    return min(points, key=lambda point: (point.memory_bytes, point.time_s, point.index))


def knee(points: Sequence[_P]) -> _P:
    """Return the point that lies furthest below the line from the fastest to the leanest point.

    Time and memory are first scaled to 0..1 between those two, so units do not matter (the
    Kneedle rule of Satopaa et al., 2011). On a frontier without a bulge it is the fastest point.
    """
    first, last = fastest(points), leanest(points)
    time_range = last.time_s - first.time_s
    memory_range = first.memory_bytes - last.memory_bytes
    if not time_range or not memory_range:
        return first

    def gain(point: _P) -> float:
        time = (point.time_s - first.time_s) / time_range
        memory = (point.memory_bytes - last.memory_bytes) / memory_range
        return 1.0 - time - memory

    best = max(points, key=lambda point: (gain(point), -point.index))
    return best if gain(best) > 0 else first


PICKS = {"time": fastest, "memory": leanest, "knee": knee}


def pick_point(points: Sequence[_P], which: str) -> _P:
    """Return the point that ``which`` names: an index, ``time``, ``memory`` or ``knee``."""
    if which in PICKS:
        return PICKS[which](points)
    if not which.isdecimal():
        check_known("--pick: unknown point", which, [*PICKS, "the index of a point"])
    found = next((point for point in points if point.index == int(which)), None)
    if found is None:
        # Sorted by time, the points within a memory limit have consecutive indices.
        valid = f"from {points[0].index} to {points[-1].index}"
        raise UserError(f"--pick: expected the index of a point that fits, {valid}, got: '{which}'")
    return found


def marks(points: Sequence[Point]) -> Mapping[int, str]:
    """Return the names of the points that have one (fastest, leanest, knee), by index."""
    named: dict[int, list[str]] = {}
    for name, choose in (("fastest", fastest), ("leanest", leanest), ("knee", knee)):
        if points:
            named.setdefault(choose(points).index, []).append(name)
    return {index: ", ".join(names) for index, names in named.items()}


def as_dict(point: Point) -> dict[str, Any]:
    """Return the point in the form of the JSON reports and of ``plan.json``."""
    figures = {name: getattr(point, name) for name in FIELDS}
    recompute = recompute_of(point)
    own = {} if recompute is None else {"recompute": recompute}
    return {"index": point.index, "mesh": list(point.mesh), **own, **figures}
