"""The plot of `--compare`: time and memory of each search's plan, and the search time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensoropt.compiler.report.comparison import Comparison
from tensoropt.compiler.report.memory import memory_title
from tensoropt.compiler.report.plot_axes import (
    COLOURS,
    byte_scale,
    second_scale,
)
from tensoropt.compiler.report.plot_bars import BAR, draw_times
from tensoropt.compiler.search.frontier.points import Point, mesh_name
from tensoropt.compiler.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tensoropt.compiler.comparison.compare import Compared

__all__ = ["comparison_figure"]

_REASON = 44


def comparison_figure(comparison: Comparison) -> Figure:
    """Return a figure with a row per method: time per step, memory, and search time."""
    from matplotlib.figure import Figure

    rows = comparison.rows
    height = 1.6 + 0.32 * max(len(rows), 2)
    figure = Figure(figsize=(10.0, height), layout="constrained")
    times, sizes, searches = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1, 1))
    _times(times, rows)
    _sizes(sizes, rows)
    _searches(searches, rows)
    times.set_yticks(range(len(rows)), [row.method for row in rows])
    times.invert_yaxis()
    for axes in (times, sizes, searches):
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    where = f"{comparison.devices} x {comparison.device}"
    figure.suptitle(f"{comparison.model} on {where}: fastest found, predicted", fontsize=10)
    figure.legend(*times.get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside lower left")
    return figure


def _fitting_rows(rows: Sequence[Compared]) -> list[tuple[int, Compared, Point]]:
    return [(place, row, row.point) for place, row in enumerate(rows) if row.point is not None]


def _times(axes: Axes, rows: Sequence[Compared]) -> None:
    found = _fitting_rows(rows)
    scale = draw_times(axes, [(place, point) for place, _, point in found], horizontal=True)
    longest = max((point.time_s / scale.one for _, _, point in found), default=1.0)
    axes.set_xlim(0, longest * 1.35)
    for place, row, point in found:
        text = f"{row.ratio:.3f}x, mesh {mesh_name(point.mesh)}"
        _annotate(axes, point.time_s / scale.one, place, text)
    for place, row in enumerate(rows):
        if row.point is None:
            reason = row.refused
            cut = f"{reason[:_REASON]}…" if len(reason) > _REASON else reason
            _annotate(axes, 0, place, f"refused: {cut}")
    axes.set_title(f"time per step ({scale.unit}), over the least", fontsize=9)


def _sizes(axes: Axes, rows: Sequence[Compared]) -> None:
    found = _fitting_rows(rows)
    scale = byte_scale(point.process_bytes for _, _, point in found)
    sizes = [(place, point.process_bytes, COLOURS[3]) for place, _, point in found]
    _bars(axes, [(p, size / scale.one, c, format_bytes(size)) for p, size, c in sizes])
    axes.set_title(memory_title((point for _, _, point in found), scale.unit), fontsize=9)


def _searches(axes: Axes, rows: Sequence[Compared]) -> None:
    seconds = [row.seconds for row in rows]
    scale = second_scale(seconds)
    _bars(
        axes,
        [
            (place, each / scale.one, COLOURS[7], format_seconds(each))
            for place, each in enumerate(seconds)
        ],
    )
    axes.set_title(f"time of the search ({scale.unit})", fontsize=9)


def _bars(axes: Axes, bars: Sequence[tuple[int, float, str, str]]) -> None:
    for place, value, colour, text in bars:
        axes.barh([place], [value], BAR, color=colour)
        _annotate(axes, value, place, text)
    axes.margins(x=0.4)


def _annotate(axes: Axes, value: float, place: int, text: str) -> None:
    axes.annotate(
        text,
        (value, place),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=7.5,
        color="0.25",
    )
