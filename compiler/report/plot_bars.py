"""Stacked bars: the parts of the time of a step, and of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensoropt.compiler.report.plot_axes import COLOURS, Scale, second_scale
from tensoropt.compiler.search.frontier.points import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BAR", "draw_stacked", "draw_times"]

BAR = 0.62
"""Thickness of a bar, as a fraction of its place."""

Part = tuple[str, Sequence[float], int]
"""Name, figure at each place, and number of the colour."""


def draw_times(
    axes: Axes, found: Sequence[tuple[int, Point]], *, horizontal: bool = False
) -> Scale:
    """Draw the compute and communication time of points at their places; return the scale."""
    scale = second_scale(point.time_s for _, point in found)
    compute = [point.compute_s for _, point in found]
    sent = [point.communication_s - point.hidden_s for _, point in found]
    parts = (("compute", compute, 0), ("communication", sent, 1))
    draw_stacked(axes, [place for place, _ in found], parts, scale, horizontal=horizontal)
    return scale


def draw_stacked(
    axes: Axes,
    places: Sequence[int],
    parts: Sequence[Part],
    scale: Scale,
    *,
    horizontal: bool = False,
) -> None:
    """Draw a bar of all ``parts`` at each place, vertical or ``horizontal``."""
    draw = axes.barh if horizontal else axes.bar
    begin = [0.0] * len(places)
    for name, figures, colour in parts:
        lengths = scale.convert(figures)
        draw(places, lengths, BAR, begin, label=name, color=COLOURS[colour])
        begin = [start + length for start, length in zip(begin, lengths, strict=True)]
