"""Options of one search, and the meshes that it covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import count_layouts, wide_axes
from tensoropt.runtime.layout.mesh import Mesh

if TYPE_CHECKING:
    from tensoropt.compiler.search.problem.problem import TableFrontier
    from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = [
    "PLACEMENTS",
    "SHALLOW_AXES",
    "LeftOut",
    "Say",
    "SearchOptions",
    "Solve",
    "Stop",
    "by_promise",
    "distinct_meshes",
]

Say = Callable[[str], None]

Solve = Callable[["MeshTables", float | None], "TableFrontier"]
"""Returns points of the tables of a mesh within the given seconds, ``None`` for any time."""

Stop = Literal["time", "memory", "tables"]
"""The cause that ended a search before its bound: the clock, the memory of the search, or cost
tables that cannot be refined further, while programs may still be further from the frontier."""

SHALLOW_AXES = 2
"""Axes of the meshes that are searched first."""
_FAR = 4
"""Upper bound of the memory of a process, in units of its memory without packed and copied
tensors."""
PLACEMENTS = 5
"""Placements of a typical tensor on one axis: whole, partial, split along one of three dims."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of one search.

    Attributes:
        solve: solver of the tables of each mesh instead of frontier tracking. It runs once per
            mesh: its points are final. Raises UserError if it refuses the tables.
        epsilon: the largest relative distance, in both objectives, from any plan to the nearest
            returned point; 0 is exact.
        resolution: the least relative difference of neighbouring points, in time and in memory.
        most_points: the resolution is coarser if more points would be left; ``None`` for any
            number.
        time_limit_s: wall time for all candidates, including their tables; exceeded by at most a
            tenth and a second, unless nothing was found yet.
        processor_s: processor time that a search may use even past its wall time.
        must_answer: search until there is a point, however long that takes.
        points: the most points per run that are costed as programs.
        memory_bytes: the memory limit of a process; points next to it are costed too.
        on_interrupt: "return" ends the search with the results so far on Ctrl-C.
        enough_bytes: the search ends once the process of a plan needs no more memory.
        search_memory_bytes: memory of the search itself, by default a quarter of the machine's.
    """

    solve: Solve | None = None
    epsilon: float = 0.0
    time_limit_s: float | None = None
    must_answer: bool = False
    points: int = 100
    memory_bytes: int | None = None
    on_interrupt: Literal["raise", "return"] = "raise"
    enough_bytes: int | None = None
    search_memory_bytes: int | None = None
    resolution: float = 0.0
    most_points: int | None = None
    processor_s: float = 0.0

    def may_exceed(self, least_bytes: float) -> bool:
        """Return whether a process may exceed ``memory_bytes``, of ``least_bytes`` by the search.

        Weights that are packed and tensors that are copied are not part of these.
        """
        return self.memory_bytes is not None and _FAR * least_bytes > self.memory_bytes


@dataclass(frozen=True)
class LeftOut:
    """A mesh without points in the result, and the reason."""

    mesh: tuple[int, ...]
    reason: str


def distinct_meshes(
    meshes: Iterable[Mesh], device: Device, *, names_axes: bool = False
) -> list[Mesh]:
    """Return ``meshes`` without those that only reorder axes of equal links: their costs are equal.

    All meshes are distinct if a pin ``names_axes``.
    """
    if names_axes:
        return list(meshes)
    kept: dict[object, Mesh] = {}
    for mesh in meshes:
        links = device.axis_links(mesh)
        key = tuple(sorted(zip(mesh.shape, map(repr, links), strict=True)))
        kept.setdefault(key, mesh)
    return list(kept.values())


def by_promise(mesh: Mesh) -> tuple[int, int]:
    """Return the sort key of a mesh: up to two axes first, the squarest of them first.

    Meshes of three axes come last; deeper ones have smaller tables again.
    """
    deep = wide_axes(mesh) > SHALLOW_AXES
    return (count_layouts(mesh, PLACEMENTS) if deep else 0), max(mesh.shape)
