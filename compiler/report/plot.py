"""A picture of a frontier: time against memory, one colour per mesh."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.search.frontier.points import Point, knee, mesh_name
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_plot_path", "plot_frontier"]

SUFFIXES = (".png", ".svg")


def check_plot_path(path: Path) -> None:
    """Raise :class:`UserError` unless ``path`` can be written, in a format that can be drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"--plot: expected a file ending in {' or '.join(SUFFIXES)}, got: '{path}'")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: expected an existing folder, got: '{path.parent}'")
    if path.is_dir():
        raise UserError(f"--plot {path}: expected a file, got: a folder")


def plot_frontier(frontier: FrontierReport, path: Path) -> None:
    """Draw the frontier into ``path``, whole or not at all; same frontier, same bytes."""
    import matplotlib

    from tensoropt.compiler.support.files import replacing

    check_plot_path(path)
    form = path.suffix.lower()[1:]
    # A fixed salt and no date, so that an SVG does not differ from run to run.
    with matplotlib.rc_context({"svg.hashsalt": "tensoropt"}), replacing(path) as aside:
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        _figure(frontier).savefig(aside, format=form, dpi=150, metadata=metadata)


def _figure(frontier: FrontierReport) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    scale, unit = _memory_unit(frontier.points)
    _staircase(axes, frontier.points, scale)
    _meshes(axes, frontier.points, scale)
    if frontier.points:
        _knee(axes, knee(frontier.points), scale)
    axes.set_xlabel(f"memory per device ({unit})")
    axes.set_ylabel("time per step (ms)")
    axes.set_title(f"{frontier.model} on {frontier.devices} x {frontier.device}")
    axes.grid(alpha=0.3)
    axes.legend(title="mesh")
    return figure


def _memory_unit(points: Sequence[Point]) -> tuple[float, str]:
    largest = max((point.memory_bytes for point in points), default=0)
    return (2.0**30, "GiB") if largest >= 2**30 else (2.0**20, "MiB")


def _staircase(axes: Axes, points: Sequence[Point], scale: float) -> None:
    # A budget between two points buys the leaner one's time: steps, not a slope.
    ordered = sorted(points, key=lambda point: (point.memory_bytes, point.time_s))
    memory = [point.memory_bytes / scale for point in ordered]
    time = [point.time_s * 1e3 for point in ordered]
    axes.step(memory, time, where="post", color="0.6", linewidth=1.0, zorder=1)


def _meshes(axes: Axes, points: Sequence[Point], scale: float) -> None:
    for mesh in sorted({point.mesh for point in points}):
        own = [point for point in points if point.mesh == mesh]
        memory = [point.memory_bytes / scale for point in own]
        time = [point.time_s * 1e3 for point in own]
        axes.scatter(memory, time, s=18, label=mesh_name(mesh), zorder=2)


def _knee(axes: Axes, point: Point, scale: float) -> None:
    where = (point.memory_bytes / scale, point.time_s * 1e3)
    axes.scatter(*where, s=90, facecolors="none", edgecolors="black", zorder=3, label="knee")
