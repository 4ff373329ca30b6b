"""Expected errors of a plan's predictions: the entries in plan.json and their short text."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["ExpectedErrorEntry", "FigureErrorEntry", "margin"]


class FigureErrorEntry(TypedDict):
    """Mean and 90th percentile of ``|predicted / measured - 1|`` over ``samples`` plans.

    Both are None if there were too few plans.
    """

    mean: float | None
    p90: float | None
    samples: int


class ExpectedErrorEntry(TypedDict):
    """Expected relative errors; ``model_measured`` if they come from other plans of the model.

    ``parts`` are the errors of the parts of a step, by name, from measured tables.
    """

    time: FigureErrorEntry | None
    memory: FigureErrorEntry | None
    model_measured: bool
    parts: dict[str, FigureErrorEntry]


def margin(figure: FigureErrorEntry | None) -> str:
    """Return the suffix of a predicted figure: ``±6%``, or ``±?`` without measurements."""
    mean = None if figure is None else figure["mean"]
    return " ±?" if mean is None else f" ±{mean:.0%}"
