"""The plot of `--objective profile`: time, throughput and memory against devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensoropt.compiler.report.frontier import ScalingReport
from tensoropt.compiler.report.memory import BESIDE, beside_bytes, memory_title
from tensoropt.compiler.report.plot_axes import COLOURS, byte_scale
from tensoropt.compiler.report.plot_bars import draw_stacked, draw_times
from tensoropt.compiler.search.frontier.points import Point, mesh_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["profile_figure"]

_Row = tuple[int, Point | None]


def profile_figure(profile: ScalingReport) -> Figure:
    """Return a figure of the parts of the time, steps per second against the ideal, and memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.8), layout="constrained")
    times, rates, sizes = figure.subplots(1, 3)
    _times(times, profile.rows)
    _rates(rates, profile.rows)
    _sizes(sizes, profile.rows)
    for axes in (times, rates, sizes):
        axes.set_xticks(range(len(profile.rows)), [str(devices) for devices, _ in profile.rows])
        axes.set_xlim(-0.6, len(profile.rows) - 0.4)
        axes.use_sticky_edges = False  # else parts of no height would lose the margin
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("devices")
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{profile.model} on {profile.device}: fastest, predicted", fontsize=10)
    return figure


def _fitting_rows(rows: Sequence[_Row]) -> list[tuple[int, int, Point]]:
    """Return place, devices and point of each row that has a point."""
    return [(place, n, point) for place, (n, point) in enumerate(rows) if point is not None]


def _times(axes: Axes, rows: Sequence[_Row]) -> None:
    found = _fitting_rows(rows)
    scale = draw_times(axes, [(place, point) for place, _, point in found])
    for place, _, point in found:
        _annotate(axes, place, point.time_s / scale.one, mesh_name(point.mesh))
    _mark_missing(axes, rows)
    axes.set_title("time per step, by mesh", fontsize=9)
    axes.set_ylabel(scale.unit)
    if found:
        axes.legend(fontsize=8)


def _rates(axes: Axes, rows: Sequence[_Row]) -> None:
    """Draw steps per second, and the ideal: in proportion to the number of devices."""
    found = [row for row in _fitting_rows(rows) if row[2].time_s > 0]
    places = [place for place, _, _ in found]
    axes.set_title("steps per second", fontsize=9)
    _mark_missing(axes, rows)
    if not found:
        return
    _, first, point = found[0]
    ideal = [n / first / point.time_s for _, n, _ in found]
    rates = [1 / each.time_s for _, _, each in found]
    axes.plot(places, ideal, linestyle="--", color="0.6", label="in proportion to devices")
    axes.plot(places, rates, marker="o", color=COLOURS[2], label="predicted")
    for place, rate in zip(places, rates, strict=True):
        _annotate(axes, place, rate, f"{rate * point.time_s:.2f}x", right=16, up=-11)
    axes.legend(fontsize=8, loc="upper left")


def _sizes(axes: Axes, rows: Sequence[_Row]) -> None:
    found = _fitting_rows(rows)
    scale = byte_scale(point.process_bytes for _, _, point in found)
    static = [point.static_bytes for _, _, point in found]
    transient = [point.transient_bytes for _, _, point in found]
    parts = [("static", static, 3), ("transient", transient, 4)]
    beside = [beside_bytes(point) for _, _, point in found]
    if any(beside):
        parts.append((BESIDE, beside, 7))
    draw_stacked(axes, [place for place, _, _ in found], parts, scale)
    _mark_missing(axes, rows)
    points = [point for _, _, point in found]
    axes.set_title(memory_title(points, scale.unit), fontsize=9)
    if found:
        highest = max(point.process_bytes for point in points) / scale.one
        axes.set_ylim(top=highest * 1.4)  # room for the legend: process bars differ little
        axes.legend(fontsize=8, loc="upper center", ncols=2)


def _annotate(
    axes: Axes, place: float, value: float, text: str, right: float = 0, up: float = 3
) -> None:
    axes.annotate(
        text,
        (place, value),
        xytext=(right, up),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color="0.3",
    )


def _mark_missing(axes: Axes, rows: Sequence[_Row]) -> None:
    for place, (_, point) in enumerate(rows):
        if point is None:
            axes.annotate(
                "does not fit",
                (place, 0),
                xytext=(0, 4),
                textcoords="offset points",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize=7.5,
                color=COLOURS[1],
            )
