"""How far predictions are to be expected off, in words."""

from __future__ import annotations

from tensoropt.compiler.cost.expected_error import LEAST_PLANS, FigureError, PlanError

__all__ = ["expected_line"]


def expected_line(error: PlanError | None, device: str) -> str:
    """Return the line that stands below predictions for a description called ``device``."""
    if error is None:
        return f"expected error: not known, nobody has measured {device} (tensoropt-profile does)"
    what = "this model" if error.model_measured else "other models"
    return f"expected error: {_time(error.time, what)}; {_memory(error.memory)}"


def _time(figure: FigureError | None, what: str) -> str:
    if figure is None:
        return "time not known, this model was not measured and no two others were"
    return _figure("time", figure, f"plans of {what} that were left out of the fit")


def _memory(figure: FigureError | None) -> str:
    return "memory not measured" if figure is None else _figure("memory", figure, "plans")


def _figure(name: str, figure: FigureError, what: str) -> str:
    if figure.mean is None or figure.p90 is None:
        more = "more models or a longer --budget of tensoropt-profile"
        return f"{name} not stated, {figure.samples} plans are too few, {LEAST_PLANS} do ({more})"
    return f"{name} {figure.mean:.0%}, nine in ten below {figure.p90:.0%} ({figure.samples} {what})"
