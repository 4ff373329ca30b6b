"""Expected error of predictions, by leave-one-out cross-validation over plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tensoropt.compiler.calibrate.samples import PlanSample
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.expected_error import (
    LEAST_PLANS,
    ExpectedError,
    FigureError,
    MeasuredModel,
)

__all__ = [
    "expected_error",
    "held_out_errors",
    "measured_models",
    "other_model_errors",
    "process_error",
]

Fit = Callable[[Sequence[PlanSample]], Device]
"""Returns the description that is fitted to some plans."""


def expected_error(
    plans: Sequence[PlanSample], fit: Fit, *, processes: bool = False
) -> ExpectedError:
    """Return the expected error, on other plans, of a fit to all ``plans``.

    Each plan is predicted by a fit to all other plans, and by a fit to the plans of other models:
    one fit per plan and per model. Memory is the memory of whole ``processes`` if the description
    predicts it, else of tensors.
    """
    if processes:
        memory = process_error(plans)
    else:  # memory needs no fit, so no plan is left out
        pairs = [(plan.predicted_bytes, plan.measured_bytes) for plan in plans]
        memory = _figure(_ratios_off(pairs))
    return ExpectedError(
        _figure(held_out_errors(plans, fit)),
        _figure(other_model_errors(plans, fit)),
        memory,
    )


def process_error(plans: Iterable[PlanSample]) -> FigureError | None:
    """Return the error of the predicted processes of ``plans``; ``None`` if none was measured."""
    pairs = [(plan.predicted_process_bytes, plan.process_bytes) for plan in plans]
    return _figure(_ratios_off(pairs))


def held_out_errors(plans: Sequence[PlanSample], fit: Fit) -> list[float]:
    """Return ``|predicted / measured - 1|`` of each plan, from a fit to all other plans.

    A plan that is the only one of its model is left out.
    """
    models = [plan.model for plan in plans]
    several = [at for at, model in enumerate(models) if models.count(model) > 1]
    return [_error(plans[at], fit([*plans[:at], *plans[at + 1 :]])) for at in several]


def other_model_errors(plans: Sequence[PlanSample], fit: Fit) -> list[float]:
    """Return the error of each plan from a fit to the plans of all other files.

    Empty if all plans are of one file.
    """
    files = list(dict.fromkeys(plan.model.sha256 for plan in plans))
    found: list[float] = []
    for file in files if len(files) > 1 else ():
        device = fit([plan for plan in plans if plan.model.sha256 != file])
        found += [_error(plan, device) for plan in plans if plan.model.sha256 == file]
    return found


def _error(plan: PlanSample, device: Device) -> float:
    return abs(plan.step.time_s(device) / plan.measured_s - 1.0)


def _ratios_off(pairs: Iterable[tuple[int | None, int | None]]) -> list[float]:
    """Return ``|predicted / measured - 1|`` of the pairs that have both figures."""
    return [abs(own / measured - 1.0) for own, measured in pairs if own is not None and measured]


def _figure(errors: Sequence[float]) -> FigureError | None:
    if len(errors) < LEAST_PLANS:
        return FigureError(None, None, len(errors)) if errors else None
    return FigureError(float(np.mean(errors)), float(np.percentile(errors, 90)), len(errors))


def measured_models(plans: Iterable[PlanSample]) -> tuple[MeasuredModel, ...]:
    """Return the distinct models of ``plans``, sorted by name."""
    models = {plan.model for plan in plans}
    return tuple(sorted(models, key=lambda own: (own.name, own.training, own.sha256)))
