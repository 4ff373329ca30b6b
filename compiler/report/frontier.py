"""Input of the reports: the frontier of one model, or its times over device counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.compiler.exporter.standard.cache_effect import Effect
from tensoropt.compiler.search.frontier.points import Overfull, Point, fitting_first, overfull_of

__all__ = ["FrontierReport", "Left", "ScalingReport"]


class Left(Protocol):
    """A mesh that was left out of the search, and the reason."""

    @property
    def mesh(self) -> tuple[int, ...]: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class Reference:
    """A plan that a plot shows for comparison, such as one written by hand."""

    label: str
    time_s: float
    memory_bytes: int


@dataclass(frozen=True)
class FrontierReport:
    """The points of a model on ``devices`` devices, sorted by time.

    ``chosen`` is the picked point. With ``narrowed``, reports list that point alone; points have
    the same names as in the whole frontier. ``epsilon`` is the bound that the search reached: 0 is
    exact, ``None`` is no bound. The first point takes at most ``1 + time_epsilon`` times the least
    time; ``None`` is no bound. ``found`` is the number of points that the search found on all
    meshes, 0 if not known. Bounds are for the searched meshes, without those in ``left_out``.
    ``interrupted``: Ctrl-C ended the search. ``stopped`` is the reason why it ended before it
    proved the requested bound: the ``time_limit_s``, the memory limit, or cost tables that cannot
    be refined further; ``None`` if it did prove it. If deeper meshes were left out for lack of
    time, ``axes`` is the largest number of axes of the meshes that the bound is about. With
    ``by_tables``, the bound is about cost tables, which may charge more memory than programs need.
    ``error`` is the expected error of the figures, ``None`` if the device has not been measured.
    Plots show ``references`` next to the points. Points of several ``forms`` of the model have the
    name of theirs, by index. ``effects`` of 8-bit caches are by model. ``added`` are the options
    that the search chose by itself, as nothing fits without them.
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
    axes: int | None = None
    by_tables: bool = False
    references: Sequence[Reference] = ()
    forms: Mapping[int, str] = field(default_factory=dict)
    effects: Mapping[str, Effect] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> Sequence[Point]:
        """The points that a report lists, those above the capacity last."""
        one = [self.chosen] if self.narrowed and self.chosen is not None else None
        return one or fitting_first(self.points)

    @property
    def overfull(self) -> Sequence[Overfull]:
        """The processes of the points above the capacity of their device."""
        every = map(overfull_of, self.points)
        return [own for own in every if own is not None]

    @property
    def ended(self) -> str:
        """The words for ``stopped``, which follow the bound; empty for ``None``."""
        if self.stopped == "time":
            return f"after {self.time_limit_s:.3g} s"
        if self.stopped == "memory":
            return "with the memory it may use"
        return "at the finest cost tables" if self.stopped else ""


@dataclass(frozen=True)
class ScalingReport:
    """The fastest point for each number of devices; ``None`` if none fits the memory."""

    model: str
    device: str
    rows: Sequence[tuple[int, Point | None]]
    error: PlanError | None = None
