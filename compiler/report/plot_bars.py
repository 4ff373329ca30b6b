"""Bars of parts, one behind the other: what the time of a step goes to, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensoropt.compiler.report.plot_axes import COLOURS, Scale, second_scale
from tensoropt.compiler.search.frontier.points import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BAR", "stacked", "step_times"]

BAR = 0.62
"""How much of its place a bar takes."""

Part = tuple[str, Sequence[float], int]
"""What it is called, its figure at each place, and the number of its colour."""


def step_times(axes: Axes, found: Sequence[tuple[int, Point]], *, lying: bool = False) -> Scale:
    """Draw the times of points at their places, by what they are spent on; return the scale."""
    scale = second_scale(point.time_s for _, point in found)
    compute = [point.compute_s for _, point in found]
    sent = [point.communication_s - point.hidden_s for _, point in found]
    parts = (("compute", compute, 0), ("communication", sent, 1))
    stacked(axes, [place for place, _ in found], parts, scale, lying=lying)
    return scale


def stacked(
    axes: Axes,
    places: Sequence[int],
    parts: Sequence[Part],
    scale: Scale,
    *,
    lying: bool = False,
) -> None:
    """Draw a bar of all ``parts`` at each place, upright or ``lying``."""
    draw = axes.barh if lying else axes.bar
    begin = [0.0] * len(places)
    for name, figures, colour in parts:
        lengths = scale.of(figures)
        draw(places, lengths, BAR, begin, label=name, color=COLOURS[colour])
        begin = [start + length for start, length in zip(begin, lengths, strict=True)]
