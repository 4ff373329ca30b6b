"""Points of a frontier as every report shows them, and the points with names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "ABOVE_CAPACITY",
    "FIELDS",
    "Overfull",
    "Point",
    "ReplicaRow",
    "as_dict",
    "check_pick",
    "describe_points",
    "fastest",
    "fitting_first",
    "interval_of",
    "knee",
    "latency_of",
    "leanest",
    "least_process_bytes",
    "marks",
    "mesh_name",
    "micro_batches_of",
    "names_of",
    "overfull_of",
    "pick_point",
    "recompute_of",
    "replicas_of",
    "schedule_of",
    "split_name",
    "split_words",
    "stage_devices_of",
    "stages_of",
]

FIELDS = (
    "time_s",
    "compute_s",
    "communication_s",
    "hidden_s",
    "process_bytes",
    "memory_bytes",
    "static_bytes",
    "transient_bytes",
)


ABOVE_CAPACITY = "above capacity"
"""The mark of a point that takes more memory than its device has."""


def mesh_name(mesh: tuple[int, ...]) -> str:
    """Return a mesh as flags and reports write it, such as 2x4."""
    return "x".join(map(str, mesh))


class Point(Protocol):
    """One trade-off between time per step and memory per device.

    ``process_bytes`` includes the ``memory_bytes`` of tensors. ``hidden_s`` of the communication
    overlaps with operators. ``is_above_capacity`` if the process takes more memory than the device
    has.
    """

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
    def hidden_s(self) -> float: ...
    @property
    def process_bytes(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def static_bytes(self) -> int: ...
    @property
    def transient_bytes(self) -> int: ...
    @property
    def is_above_capacity(self) -> bool: ...


_P = TypeVar("_P", bound=Point)


@dataclass(frozen=True)
class Overfull:
    """A process that takes more memory than its device has."""

    device: str
    need_bytes: int
    capacity_bytes: int

    @property
    def excess_bytes(self) -> int:
        return self.need_bytes - self.capacity_bytes

    @classmethod
    def most(cls, every: Iterable[Overfull | None]) -> Overfull | None:
        """Return the process that is furthest above the memory of its device, if any is."""
        found = (own for own in every if own is not None)
        return max(found, key=lambda own: own.excess_bytes, default=None)


class ReplicaRow(NamedTuple):
    """A replica: its device, the micro-batches and samples that it takes, and their time.

    ``samples`` is ``None`` if the inputs of a micro-batch do not have one number of them.
    """

    device: str
    micro_batches: int
    samples: int | None
    busy_s: float


def fitting_first(points: Sequence[_P]) -> list[_P]:
    """Return the points in the order of reports: those above the capacity come last."""
    return sorted(points, key=lambda point: point.is_above_capacity)


def overfull_of(point: Point) -> Overfull | None:
    """Return the process of a point that is above the capacity; ``None`` if there is none."""
    found: Overfull | None = getattr(point, "overfull", None)
    return found


def recompute_of(point: Point) -> str | None:
    """Return the recompute policy of a training step; ``None`` for inference."""
    return getattr(point, "recompute", None)


def micro_batches_of(point: Point) -> int | None:
    """Return the number of micro-batches of a training step; ``None`` for inference."""
    return getattr(point, "micro_batches", None)


def stages_of(point: Point) -> int:
    """Return the number of stages."""
    return getattr(point, "stages", 1)


def replicas_of(point: Point) -> Sequence[ReplicaRow]:
    """Return the replicas of a training step; none without replicas."""
    return getattr(point, "replica_rows", ())


def latency_of(point: Point) -> float:
    """Return the time from an input to its result, in seconds."""
    return getattr(point, "latency_s", point.time_s)


def interval_of(point: Point) -> float:
    """Return the time between results of a stream of inputs: without stages the latency."""
    return getattr(point, "interval_s", point.time_s)


def schedule_of(point: Point) -> str:
    """Return the family of the schedule of stages, a dash without stages."""
    return getattr(point, "schedule", "-")


def split_name(point: Point) -> str:
    """Return the mesh of a point, with its stages or replicas: 4 stages of 2x4."""
    return split_words(stages_of(point), point.mesh, len(replicas_of(point)))


def split_words(stages: int, mesh: tuple[int, ...], replicas: int = 0) -> str:
    """Return the mesh of each stage or replica, with their number if there are several."""
    if stages > 1:
        return f"{stages} stages of {mesh_name(mesh)}"
    return f"{replicas} replicas of {mesh_name(mesh)}" if replicas else mesh_name(mesh)


def fastest(points: Sequence[_P]) -> _P:
    """Return the point of least time, among equal points of least memory."""
    return min(points, key=lambda point: (point.time_s, point.process_bytes, point.index))


def leanest(points: Sequence[_P]) -> _P:
    """Return the point of least process memory, among equal points of least time."""
    return min(points, key=lambda point: (point.process_bytes, point.time_s, point.index))


def least_process_bytes(points: Sequence[Point]) -> int:
    """Return the least memory that a process takes at any of the points."""
    return min(point.process_bytes for point in points)


_WORTH = 3  # per cent less memory for which a person still gives one per cent of time


def knee(points: Sequence[_P]) -> _P:
    """Return the point of least ``time ** 3 * memory``; among equal points the fastest.

    On logarithmic axes it is where the frontier touches a line of slope -3: a slower point does not
    save 3% of memory for each 1% of time. Neither units nor points elsewhere matter, such as a slow
    tail or an end that a memory limit cuts. The distance from a line between the two ends depends
    on both, and is never positive for two points.
    """
    return min(
        points,
        key=lambda point: (point.time_s**_WORTH * point.process_bytes, point.time_s, point.index),
    )


PICKS = {"fastest": fastest, "leanest": leanest, "knee": knee}


def pick_point(points: Sequence[_P], which: str) -> _P:
    """Return the point that ``which`` names: an index, ``fastest``, ``leanest`` or ``knee``."""
    check_pick(which)
    if which in PICKS:
        return PICKS[which](points)
    found = next((point for point in points if point.index == int(which)), None)
    if found is None:
        valid = _indices([point.index for point in points])
        raise UserError(f"--pick: expected the index of a point that fits, {valid}, got: '{which}'")
    return found


def check_pick(which: str) -> None:
    """Raise UserError for a text that names no point of any frontier."""
    if not which.isdecimal():
        check_known("--pick: unknown point", which, [*PICKS, "the index of a point"])


def _indices(found: Sequence[int]) -> str:
    """Return the sorted indices as text: points within a limit may have gaps."""
    if found[-1] - found[0] < len(found):
        return f"from {found[0]} to {found[-1]}"
    return f"one of {', '.join(map(str, found))}"


def stage_devices_of(point: Point) -> Sequence[str]:
    """Return the name of the device of each stage, if these are unlike."""
    return getattr(point, "stage_devices", ())


def names_of(points: Sequence[Point]) -> Mapping[int, Sequence[str]]:
    """Return the names of the points that have any (fastest, leanest, knee), by index.

    Points above the capacity of their device have no name.
    """
    named: dict[int, list[str]] = {}
    within = [point for point in points if not point.is_above_capacity]
    for name, choose in (("fastest", fastest), ("leanest", leanest), ("knee", knee)):
        if within:
            named.setdefault(choose(within).index, []).append(name)
    return named


def marks(points: Sequence[Point]) -> Mapping[int, Sequence[str]]:
    """Return the marks of the points that have any, by index: names, and ``above capacity``."""
    marked = {index: [*own] for index, own in names_of(points).items()}
    for point in points:
        if point.is_above_capacity:
            marked.setdefault(point.index, []).append(ABOVE_CAPACITY)
    return marked


def as_dict(point: Point) -> dict[str, Any]:
    """Return the point in the form of the JSON reports."""
    figures = {name: getattr(point, name) for name in FIELDS}
    own = {"recompute": recompute_of(point), "micro_batches": micro_batches_of(point)}
    known = {name: value for name, value in own.items() if value is not None}
    if latency_of(point) != interval_of(point):
        figures |= {"latency_s": latency_of(point), "interval_s": interval_of(point)}
    return {"index": point.index, "mesh": list(point.mesh), **known, **figures}


def describe_points(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Return a frontier in the form of the JSON report and of ``plan.json``: with its marks."""
    named = marks(points)
    return [{**as_dict(point), "marks": [*named.get(point.index, ())]} for point in points]
