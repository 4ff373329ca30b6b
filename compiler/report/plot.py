"""Plots of search results: time against memory, time against devices, or a bar per search."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.report.comparison import Comparison
from tensoropt.compiler.report.explain.stages import staged_step
from tensoropt.compiler.report.frontier import FrontierReport, ScalingReport
from tensoropt.compiler.report.memory import memory_title
from tensoropt.compiler.report.plot_axes import COLOURS, Scale, begin, byte_scale, second_scale
from tensoropt.compiler.report.plot_labels import Box, Text, place_labels
from tensoropt.compiler.report.plot_stages import draw_stages, stages_inches
from tensoropt.compiler.search.frontier.points import (
    ABOVE_CAPACITY,
    Point,
    names_of,
    replicas_of,
    split_name,
    stages_of,
)
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_plot_path", "frontier_svg", "plot_comparison", "plot_frontier", "plot_profile"]

SUFFIXES = (".png", ".svg")
_MARKERS = "osD^vP*X"
_TYPE = 7.5  # of labels, in points
_LEGEND = 8  # most meshes for a legend inside the axes
_NAME = 60
_NUMBERED = 30  # labels, in addition to the points that have a name
_OVERHANG = 4.0  # the most that a label may exceed the right and upper side of the axes, in points


def check_plot_path(path: Path) -> None:
    """Raise :class:`UserError` unless ``path`` can be written and has a supported suffix."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"--plot: expected a file ending in {' or '.join(SUFFIXES)}, got: '{path}'")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: expected an existing folder, got: '{path.parent}'")
    if path.is_dir():
        raise UserError(f"--plot {path}: expected a file, got: a folder")


def plot_frontier(frontier: FrontierReport, path: Path) -> None:
    """Draw the frontier into ``path``, whole or not at all; equal frontiers have equal bytes."""
    with _drawing():
        _save(_frontier_figure(frontier), path)


def frontier_svg(frontier: FrontierReport) -> str:
    """Return the plot of :func:`plot_frontier` as an SVG element with text, not glyph outlines."""
    from matplotlib import rc_context

    drawn = io.StringIO()
    with _drawing(), rc_context({"svg.fonttype": "none"}):
        _frontier_figure(frontier).savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def plot_profile(profile: ScalingReport, path: Path) -> None:
    """Draw time, throughput and memory against devices, written as by :func:`plot_frontier`."""
    from tensoropt.compiler.report.plot_scaling import profile_figure

    with _drawing():
        _save(profile_figure(profile), path)


def plot_comparison(comparison: Comparison, path: Path) -> None:
    """Draw the results of several searches, written as by :func:`plot_frontier`."""
    from tensoropt.compiler.report.plot_comparison import comparison_figure

    with _drawing():
        _save(comparison_figure(comparison), path)


_figures = threading.RLock()
"""Options and warnings of plots belong to the process."""


@contextmanager
def _drawing() -> Iterator[None]:
    """Set the options of every plot; names may be in any script and contain any sign."""
    import matplotlib

    # The fixed salt makes the identifiers in an SVG the same in every run.
    with (
        _figures,
        matplotlib.rc_context(
            {"svg.hashsalt": "tensoropt", "text.parse_math": False, "font.size": 9.0}
        ),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _save(figure: Figure, path: Path) -> None:
    from tensoropt.compiler.support.files import replacing

    check_plot_path(path)
    form = path.suffix.lower()[1:]
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    with replacing(path) as aside:
        figure.savefig(aside, format=form, dpi=150, metadata=metadata)


def _frontier_figure(frontier: FrontierReport) -> Figure:
    from matplotlib.figure import Figure

    staged = None if frontier.chosen is None else staged_step(frontier.chosen)
    if staged is None:
        figure = Figure(figsize=(7.2, 4.5), layout="constrained")
        axes = figure.add_subplot()
    else:
        lanes = stages_inches(staged)
        figure = Figure(figsize=(7.2, 4.5 + lanes), layout="constrained")
        axes, below = figure.subplots(2, height_ratios=[4.5, lanes])
        draw_stages(below, staged)
    sizes = [point.process_bytes for point in frontier.points]
    times = [point.time_s for point in frontier.points]
    memory, time = byte_scale(sizes), second_scale(times)
    sizes += [reference.memory_bytes for reference in frontier.references]
    times += [reference.time_s for reference in frontier.references]
    begin(axes, "x", memory.convert(sizes))
    begin(axes, "y", time.convert(times))
    axes.set_xlabel(memory_title(frontier.points, memory.unit))
    axes.set_ylabel(f"time per step ({time.unit})")
    axes.set_title(_title(frontier), fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if frontier.points:
        _draw_points(figure, axes, frontier, memory, time)
    return figure


def _title(frontier: FrontierReport) -> str:
    name = frontier.model
    if len(name) > _NAME:
        name = f"{name[: _NAME // 2]}…{name[-_NAME // 2 :]}"
    return f"{name} on {frontier.devices} x {frontier.device}, predicted"


def _draw_points(
    figure: Figure, axes: Axes, frontier: FrontierReport, memory: Scale, time: Scale
) -> None:
    points = frontier.points
    x = memory.convert(point.process_bytes for point in points)
    y = time.convert(point.time_s for point in points)
    _staircase(axes, x, y)
    _meshes(axes, points, x, y)
    _crosses(axes, points, x, y)
    _rings(axes, frontier, x, y)
    others_x = memory.convert(reference.memory_bytes for reference in frontier.references)
    others_y = time.convert(reference.time_s for reference in frontier.references)
    axes.scatter(others_x, others_y, s=34, marker="*", color="0.25", zorder=2)
    if len({split_name(point) for point in points}) > _LEGEND:
        axes.legend(title="mesh", fontsize=8, bbox_to_anchor=(1.01, 1.0), loc="upper left")
    else:
        axes.legend(title="mesh", fontsize=8, framealpha=0.85, loc="best")
    places = zip([*x, *others_x], [*y, *others_y], strict=True)
    _labels(figure, axes, frontier, list(places))


def _staircase(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    # A memory budget between two points allows the fastest point that fits: steps, not a slope.
    sizes, times = zip(*sorted(zip(x, y, strict=True)), strict=True)
    ordered = zip(sizes, accumulate(times, min), strict=True)
    axes.step(*zip(*ordered, strict=True), where="post", color="0.65", linewidth=1.0, zorder=1)


def _meshes(axes: Axes, points: Sequence[Point], x: Sequence[float], y: Sequence[float]) -> None:
    size = 22 if len(points) <= 100 else 12
    meshes = {
        (stages_of(point), len(replicas_of(point)), point.mesh): split_name(point)
        for point in points
    }
    names = [split_name(point) for point in points]
    for number, (_, name) in enumerate(sorted(meshes.items())):
        own = [index for index, of in enumerate(names) if of == name]
        axes.scatter(
            [x[index] for index in own],
            [y[index] for index in own],
            s=size,
            color=COLOURS[number % len(COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            label=name,
            zorder=2,
        )


def _crosses(axes: Axes, points: Sequence[Point], x: Sequence[float], y: Sequence[float]) -> None:
    """Cross out the points above the capacity of the device."""
    places = [place for place, point in enumerate(points) if point.is_above_capacity]
    if places:
        xs, ys = ([values[place] for place in places] for values in (x, y))
        axes.scatter(xs, ys, s=60, label=ABOVE_CAPACITY, marker="x", color="black", zorder=3)


def _rings(axes: Axes, frontier: FrontierReport, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw a ring around the knee, and a thick ring around the picked point."""
    knees = [index for index, names in names_of(frontier.points).items() if "knee" in names]
    rings = [("knee", index, 90, "black", 1.0) for index in knees]
    if frontier.chosen is not None:
        rings.append(("pick", frontier.chosen.index, 160, "#c01c28", 1.8))
    for label, index, size, colour, width in rings:
        place = [each.index for each in frontier.points].index(index)
        axes.scatter(
            [x[place]],
            [y[place]],
            s=size,
            label=label,
            facecolors="none",
            edgecolors=colour,
            linewidths=width,
            zorder=3,
        )


def _labels(
    figure: Figure, axes: Axes, frontier: FrontierReport, where: Sequence[tuple[float, float]]
) -> None:
    """Label the references, the named points, and the other points that fit."""
    figure.draw_without_rendering()  # the axes have no position before
    inch = 72.0 / figure.dpi
    places = [(px * inch, py * inch) for px, py in axes.transData.transform(where)]
    frame = _box(axes, inch, _OVERHANG)
    legend = axes.get_legend()
    taken = [] if legend is None else [_box(legend, inch)]
    for label in place_labels(places, _texts(frontier), frame, _TYPE, taken):
        axes.annotate(
            label.text.text,
            where[label.text.point],
            (label.right, label.up),
            textcoords="offset points",
            fontsize=_TYPE,
            color="0.1" if label.text.must else "0.4",
            annotation_clip=False,
            zorder=4,
        ).set_in_layout(False)


def _box(drawn: Artist, inch: float, margin: float = 0.0) -> Box:
    """Return the box of an artist, in points, with a ``margin`` on the right and on top."""
    box = drawn.get_window_extent()
    return box.x0 * inch, box.y0 * inch, box.x1 * inch + margin, box.y1 * inch + margin


def _texts(frontier: FrontierReport) -> list[Text]:
    """Return the labels: of references, of named points, then of an even sample of the others.

    References are numbered after the points.
    """
    points = frontier.points
    references = [
        Text(len(points) + number, reference.label, must=True)
        for number, reference in enumerate(frontier.references)
    ]
    named = {index: [*names] for index, names in names_of(points).items()}
    if frontier.chosen is not None:
        named.setdefault(frontier.chosen.index, []).append("pick")
    first = [
        Text(place, f"{point.index} {', '.join(named[point.index])}", must=True)
        for place, point in enumerate(points)
        if point.index in named
    ]
    rest = [place for place in _spread(len(points)) if points[place].index not in named]
    sample = (Text(place, str(points[place].index)) for place in rest[:_NUMBERED])
    return [*references, *first, *sample]


def _spread(count: int) -> Iterator[int]:
    """Yield 0 to ``count`` - 1, halves first, so that any prefix is evenly spread."""
    step, seen = 1 << max(count - 1, 0).bit_length(), set[int]()
    while step:
        for place in range(0, count, step):
            if place not in seen:
                seen.add(place)
                yield place
        step //= 2
