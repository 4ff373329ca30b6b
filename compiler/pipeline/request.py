"""What a person asks for: on which devices, how to search, and which point to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import Mesh, factorisations
from tensoropt.compiler.search.frontier.points import Point, leanest
from tensoropt.compiler.search.methods.registry import METHODS
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes
from tensoropt.compiler.training.spec import TrainingSpec

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult

__all__ = [
    "SEARCHES",
    "Chosen",
    "Request",
    "device_counts",
    "fitting",
    "nothing_fits",
]

SEARCHES = tuple(METHODS)

_P = TypeVar("_P", bound=Point)


DEFAULT_SEARCH_S = 8.0
"""What a search may take where neither ``--epsilon`` nor ``--search-time`` says so: a person who
waits for the answer has it within about ten seconds."""


@dataclass(frozen=True)
class Request:
    """The devices to plan for and how to search.

    ``mesh`` stands for itself; without one, every factorisation of ``devices`` is searched.
    ``device_spec`` is what ``device`` was loaded from: its name or the path of its file.
    ``memory_bytes`` is what one device may use, ``None`` for no limit. ``epsilon`` is how far a
    point of the exact frontier may lie, relatively, from one that is found; 0 is exact.
    ``time_limit_s`` is what the search of all meshes of one number of devices may take; nobody
    asked for it where the search is ``anytime``, which only what knows a bound heeds. ``pins`` is a
    plan.json whose strategies are taken in place of a search. ``training`` holds the steps to
    search, which differ in what they compute anew; it is empty for inference.
    """

    device: Device
    device_spec: str
    devices: int
    mesh: Mesh | None = None
    search: str = "ft"
    seed: int | None = None
    memory_bytes: int | None = None
    epsilon: float = 0.0
    time_limit_s: float | None = None
    anytime: bool = False
    pins: Mapping[str, Any] | None = None
    training: Sequence[TrainingSpec] = ()

    @property
    def meshes(self) -> list[Mesh]:
        """The meshes to search."""
        return [self.mesh] if self.mesh else list(factorisations(self.devices))

    @property
    def extremes(self) -> Request:
        """The same request for the fastest and the leanest point alone, which are always exact."""
        return replace(self, epsilon=1.0)

    def on(self, devices: int) -> Request:
        """Return the same request for another number of devices."""
        return replace(self, devices=devices, mesh=None)


@dataclass(frozen=True)
class Chosen:
    """The point to compile, the frontier it comes from, and the model file with the weights."""

    source: Path
    request: Request
    result: FrontierResult
    point: FrontierPoint


def device_counts(most: int) -> list[int]:
    """Return 1, 2, 4, 8, ... up to ``most``, and ``most`` itself."""
    powers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return powers if powers[-1] == most else [*powers, most]


def fitting(points: Sequence[_P], request: Request) -> Sequence[_P]:
    """Return the points within the memory limit; when there is none, say by how much."""
    limit = request.memory_bytes
    if limit is None:
        return points
    fits = [point for point in points if point.memory_bytes <= limit]
    if not fits:
        raise nothing_fits(limit, leanest(points).memory_bytes, request.devices)
    return fits


def nothing_fits(limit_bytes: int, need: int, devices: int, *, exactly: bool = True) -> UserError:
    """Return the error for a memory limit below ``need`` bytes: the leanest plan's, or a bound."""
    least = "" if exactly else "at least "
    return UserError(
        f"--memory: nothing fits {format_bytes(limit_bytes)} on {devices} "
        f"device{'' if devices == 1 else 's'}, the leanest plan needs {least}{format_bytes(need)} "
        f"({need} bytes), {format_bytes(need - limit_bytes)} more; expected more memory or devices"
    )
