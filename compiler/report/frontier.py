"""What the reports are about: the frontier of one model, or its times over device counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.compiler.search.frontier.points import Point

__all__ = ["FrontierReport", "Left", "ScalingReport"]


class Left(Protocol):
    """A mesh that no point is of, and why."""

    @property
    def mesh(self) -> tuple[int, ...]: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class FrontierReport:
    """The points of a model on ``devices`` devices, sorted by time.

    ``chosen`` is the point to take. With ``narrowed`` reports are of that point alone; the names of
    points stay those of the whole.
    ``epsilon`` is the bound that the search reached: 0 is exact, ``None`` no frontier within one.
    The first takes at most ``1 + time_epsilon`` of the least time; ``None``: no bound.
    ``found`` is how many points the search had, of all meshes; 0 where that is not known. The
    bounds are those of the meshes searched, without those ``left_out``. ``interrupted``: Ctrl-C
    ended the search. ``stopped`` names what ended it before the bound asked for was proven: the
    ``time_limit_s``, the memory, or tables that had nothing more to learn; ``None`` if nothing
    did. ``error`` is how far off the figures
    are to be expected; ``None`` where nobody measured the device.
    """

    model: str
    device: str
    devices: int
    points: Sequence[Point]
    chosen: Point | None = None
    narrowed: bool = False
    epsilon: float | None = 0.0
    time_epsilon: float | None = None
    found: int = 0
    left_out: Sequence[Left] = ()
    interrupted: bool = False
    stopped: Literal["time", "memory", "tables"] | None = None
    time_limit_s: float | None = None
    error: PlanError | None = None

    @property
    def shown(self) -> Sequence[Point]:
        """The points that a report lists."""
        return [self.chosen] if self.narrowed and self.chosen is not None else self.points

    @property
    def ended(self) -> str:
        """What ``stopped`` the search, in words that follow its bound; empty if nothing did."""
        if self.stopped == "time":
            return f"after {self.time_limit_s:g} s"
        if self.stopped == "memory":
            return "with the memory it may use"
        return "with nothing more to learn" if self.stopped else ""


@dataclass(frozen=True)
class ScalingReport:
    """The fastest point for each number of devices; ``None`` where nothing fits the memory."""

    model: str
    device: str
    rows: Sequence[tuple[int, Point | None]]
    error: PlanError | None = None
