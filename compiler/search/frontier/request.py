"""What a person asks of a search: on which devices, how to search, and which point to take.

The flags of the command fill in a :class:`Request`, the pass `search-strategies` is one, and the
search reads it: there is no other list of these options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.layout.collective_overlap import OVERLAPS
from tensoropt.compiler.layout.mesh import Mesh, factorisations, parse_mesh
from tensoropt.compiler.search.frontier.pins import Pin, annotated_pins, read_pin
from tensoropt.compiler.search.frontier.points import Point, least_process_bytes
from tensoropt.compiler.search.methods.registry import METHODS, takers
from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, parse_bytes

__all__ = [
    "ANSWER_S",
    "DEFAULT_DEVICES",
    "MANY_DEVICES",
    "MAX_DEVICES",
    "PINNED",
    "SEARCHES",
    "Request",
    "device_counts",
    "fitting",
    "lacking",
    "nothing_fits",
]

SEARCHES = tuple(METHODS)
PINNED = "pinned"
"""What found strategies that nothing searched."""

DEFAULT_DEVICES = 4
MAX_DEVICES = 1024
MANY_DEVICES = 64
"""Number of devices above which only meshes of up to three axes are searched; also the largest
number that ``objective`` devices tries by default."""
MANY_AXES = 3
ANSWER_S = 10.0
"""Where neither ``epsilon`` nor ``search_time`` says how long to search, the person who waits has
the answer after so many seconds, counted from the start of the command."""
RESOLUTION = 0.01
"""Default relative distance of shown points: nobody chooses between closer plans."""
MOST_POINTS = 25
"""Largest number of points without ``--resolution`` and ``--epsilon``: more are not compared."""
_OBJECTIVES = ("time", "memory", "devices")

_P = TypeVar("_P", bound=Point)


@dataclass(frozen=True)
class Request:
    """The devices to plan for, how to search, and which point to take; all as flags write it.

    ``mesh``, such as 2x4, stands for itself; without one, every factorisation of ``devices`` is
    searched. ``device`` names a device description, or is the path of one. ``memory`` is what one
    device may use, such as 16GiB; ``objective`` is time, memory, or devices: the fewest of them, up
    to ``devices``, on which something fits. ``epsilon`` is how far a point of the exact frontier
    may lie, relatively, from one that is found; 0 is exact. ``search_time`` is what the search of
    all meshes of one number of devices may take, in seconds. Without both, a search ends so that
    the answer is there after ten seconds (``answer_time.py``), or when it has something.
    ``search_memory`` is what its tables, bounds and lists may take, such as 4GiB; without it a
    quarter of the machine's memory. ``strategies`` is a plan.json whose strategies are taken in
    place of a search. ``pick`` is the index of a point, fastest, leanest or knee. ``overlap`` is
    auto, or off to let no collective run during operators. ``resolution`` is the least relative
    difference, in time and in memory, between neighbouring points: 0.01, or ``epsilon`` if less.

    ``pins`` and ``forbid`` are what single tensors and nodes must and may not be (docs/pins.md);
    ``model`` is the file whose names of tensors between nodes they may use. ``annotations`` is a
    model whose multi-device annotations are pins as well.
    """

    devices: int = DEFAULT_DEVICES
    mesh: str | None = None
    device: str = "cpu"
    memory: str | None = None
    objective: str = "time"
    search: str = "ft"
    seed: int | None = None
    epsilon: float | None = None
    search_time: float | None = None
    search_memory: str | None = None
    strategies: str | None = None
    pick: str | None = None
    overlap: str = "auto"
    resolution: float | None = None
    pins: tuple[str, ...] = field(default=(), metadata={"option": False})
    forbid: tuple[str, ...] = field(default=(), metadata={"option": False})
    model: str | None = field(default=None, metadata={"option": False})
    annotations: str | None = field(default=None, metadata={"option": False})

    def __post_init__(self) -> None:
        check_known("--objective: unknown objective", self.objective, _OBJECTIVES)
        check_known("--search: unknown search", self.search, SEARCHES)
        check_known("--overlap: unknown choice", self.overlap, OVERLAPS)
        if self.mesh is not None:
            object.__setattr__(self, "devices", parse_mesh(self.mesh).size)

    @cached_property
    def description(self) -> Device:
        """The description of a device; raises UserError where there is none."""
        device = load_device(self.device)
        return device.without_overlap() if self.overlap == "off" else device

    @cached_property
    def meshes(self) -> list[Mesh]:
        """The meshes to search."""
        if self.mesh:
            return [parse_mesh(self.mesh)]
        axes = self.devices if self.devices <= MANY_DEVICES else MANY_AXES
        return [mesh for mesh in factorisations(self.devices) if len(mesh.shape) <= axes]

    @cached_property
    def memory_bytes(self) -> int | None:
        """What one device may use, ``None`` for no limit."""
        return None if self.memory is None else parse_bytes(self.memory, "--memory")

    @property
    def tensor_bytes(self) -> int | None:
        """What that leaves for the tensors of a device, 1 at least, ``None`` for no limit."""
        limit = self.memory_bytes
        return None if limit is None else max(limit - self.rest_bytes, 1)

    @property
    def rest_bytes(self) -> int:
        """What the process of a device takes before it has tensors."""
        return self.description.rest_bytes(self.devices)

    @cached_property
    def search_memory_bytes(self) -> int | None:
        """What the search may take, ``None`` for the default."""
        text = self.search_memory
        return None if text is None else parse_bytes(text, "--search-memory")

    @cached_property
    def read_pins(self) -> tuple[Pin, ...]:
        """What ``pins``, ``annotations`` and ``forbid`` say; UserError if one says nothing."""
        given = tuple(read_pin(text) for text in self.pins)
        if self.annotations is not None:
            given += annotated_pins(Path(self.annotations))
        return given + tuple(read_pin(text, forbids=True) for text in self.forbid)

    @cached_property
    def given_plan(self) -> Mapping[str, Any] | None:
        """The plan.json of ``strategies``."""
        if self.strategies is None:
            return None
        from tensoropt.compiler.search.frontier.given_plan import read_given_plan

        return read_given_plan(Path(self.strategies))

    @property
    def anytime(self) -> bool:
        """Whether the search ends when a person has waited long enough."""
        return self.epsilon is None and self.search_time is None

    @property
    def resolution_used(self) -> float:
        """The relative distance of shown points: 1%, less for a finer bound."""
        if self.resolution is not None:
            return self.resolution
        return RESOLUTION if self.epsilon is None else min(RESOLUTION, self.epsilon)

    @property
    def most_points(self) -> int | None:
        """The largest number of points of a default search."""
        return MOST_POINTS if self.resolution is None and self.epsilon is None else None

    @property
    def tolerance(self) -> float:
        """The bound of the search: nothing is gained by one finer than the resolution."""
        return self.resolution_used if self.epsilon is None else self.epsilon

    @property
    def found_by(self) -> str:
        """What the plan names as its search."""
        return self.search if self.strategies is None else PINNED

    @property
    def used_seed(self) -> int | None:
        """The seed, where what is searched with takes one."""
        return (self.seed or 0) if self.found_by in takers("seed") else None

    @property
    def picked(self) -> str:
        """The point to take: what ``pick`` says, else what the objective asks for."""
        if self.pick is not None:
            return self.pick
        return "leanest" if self.objective == "memory" else "fastest"

    def on(self, devices: int) -> Request:
        """Return the same request for another number of devices."""
        return replace(self, devices=devices, mesh=None)


def device_counts(most: int) -> list[int]:
    """Return 1, 2, 4, 8, ... up to ``most``, and ``most`` itself."""
    powers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return powers if powers[-1] == most else [*powers, most]


def fitting(points: Sequence[_P], request: Request) -> Sequence[_P]:
    """Return the points within the memory limit; when there is none, say by how much."""
    limit = request.memory_bytes
    if limit is None:
        return points
    fits = [point for point in points if point.process_bytes <= limit]
    if not fits:
        raise nothing_fits(request, limit, least_process_bytes(points))
    return fits


def nothing_fits(
    request: Request, limit_bytes: int, need: int, *, exactly: bool = True
) -> UserError:
    """Return the error for a memory limit below ``need`` bytes: the leanest plan's, or a bound."""
    devices, rest = request.devices, request.rest_bytes
    expected = "expected more memory or devices"
    if rest >= limit_bytes:
        expected = f"a process takes {format_bytes(rest)} without any model, expected more memory"
    return UserError(
        f"--memory: nothing fits {format_bytes(limit_bytes)} on {devices} "
        f"device{'' if devices == 1 else 's'}, {lacking(limit_bytes, need, exactly=exactly)}; "
        f"{expected}"
    )


def lacking(limit_bytes: int, need: int, *, exactly: bool = True) -> str:
    """Return what is missing where the leanest plan needs ``need`` bytes, or at least that."""
    least = "" if exactly else "at least "
    return (
        f"the leanest plan needs {least}{format_bytes(need)} ({need} bytes), "
        f"{format_bytes(need - limit_bytes)} more"
    )
