"""The expected error of predictions, in words."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.compiler.cost.expected_error import LEAST_PLANS, FigureError, PlanError

__all__ = ["expected_line"]


def expected_line(
    error: PlanError | None, device: str, shares: Mapping[str, float] | None = None
) -> str:
    """Return the line below predictions for a device description called ``device``.

    ``shares`` are the shares of the plan's time in the parts that tables measure.
    """
    if error is None:
        return f"expected error: unknown, {device} has not been measured (run tensoropt-profile)"
    models = "this model" if error.model_measured else "other models"
    if error.time is not None:
        time = _figure("time", error.time, f"plans of {models} that were left out of the fit")
    elif error.parts:
        time = _parts(error.parts, shares)
    else:
        time = "time unknown, neither this model nor two others were measured"
    memory = "memory not measured"
    if error.memory is not None:  # of all measured plans, as no fit is involved
        memory = _figure("memory", error.memory, "plans")
    return f"expected error: {time}; {memory}"


def _parts(parts: Mapping[str, FigureError], shares: Mapping[str, float] | None) -> str:
    """Return the mean errors of the parts of a step: of all, or of those with a share of it."""
    listed = [
        f"{name} {own.mean:.0%}{f' ({shares[name]:.0%} of the time)' if shares else ''}"
        for name, own in parts.items()
        if own.mean is not None and (shares is None or shares.get(name))
    ]
    return f"{', '.join((*listed, 'other operators and whole steps not measured'))}"


def _figure(name: str, figure: FigureError, plans: str) -> str:
    if figure.mean is None or figure.p90 is None:
        more = "more models or a longer --budget of tensoropt-profile"
        return (
            f"{name} unknown, expected at least {LEAST_PLANS} measured plans, "
            f"got: {figure.samples} ({more})"
        )
    within = f"nine in ten below {figure.p90:.0%}"
    return f"{name} {figure.mean:.0%}, {within} ({figure.samples:,} {plans})"
