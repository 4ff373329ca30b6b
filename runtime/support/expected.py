"""How far off a plan's figures are to be expected, as plan.json has it, and in a few signs."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["ExpectedErrorEntry", "FigureErrorEntry", "margin"]


class FigureErrorEntry(TypedDict):
    """Of so many plans ``|predicted / measured - 1|``: the mean, and what nine in ten stay below;
    None both where there were too few."""

    mean: float | None
    p90: float | None
    samples: int


class ExpectedErrorEntry(TypedDict):
    """How far off predictions are to be expected; ``model_measured`` if that is of other plans of
    the same model."""

    time: FigureErrorEntry | None
    memory: FigureErrorEntry | None
    model_measured: bool


def margin(figure: FigureErrorEntry | None) -> str:
    """Return what follows a predicted figure: ``±6%``, or ``±?`` where nobody measured."""
    mean = None if figure is None else figure["mean"]
    return " ±?" if mean is None else f" ±{mean:.0%}"
