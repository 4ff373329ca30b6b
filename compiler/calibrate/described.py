"""From measurements to the description of a device: the fit, and how far it is off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensoropt.compiler.calibrate.description import Description
from tensoropt.compiler.calibrate.fit import FittedOperator, fit_collectives, fit_operators
from tensoropt.compiler.calibrate.held_out import expected_error, measured_models
from tensoropt.compiler.calibrate.samples import Measurements, OpSample, PlanSample
from tensoropt.compiler.calibrate.waiting import fit_waiting
from tensoropt.compiler.cost.device import Device

__all__ = ["Identity", "described"]


@dataclass(frozen=True)
class Identity:
    """What a description is called, what it takes over from where nothing was measured, and what it
    says of its source."""

    name: str
    base: Device
    source: str


def described(identity: Identity, measured: Measurements, *, checked: bool) -> Description:
    """Return the description that the measurements lead to.

    Where it is ``checked`` it says how far predictions are off on plans left out: a fit per plan.
    """
    whole = _fitted(identity, measured, measured.plans)
    if not checked:
        return whole

    def fit(plans: Sequence[PlanSample]) -> Device:
        return _fitted(identity, measured, plans).device

    expected = expected_error(measured.plans, fit)
    return replace(whole, expected=expected, models=measured_models(measured.plans))


def _fitted(identity: Identity, measured: Measurements, plans: Sequence[PlanSample]) -> Description:
    """Return the description with operators, collectives, and then what steps take beyond both."""
    apart = Description(
        identity.name,
        identity.base,
        identity.source,
        measured.machine,
        measured.basics,
        _united([sample for plan in plans for sample in plan.ops], measured.common),
        fit_collectives(measured.collectives),
    )
    return replace(apart, waiting=fit_waiting(plans, apart.device))


def _united(own: Sequence[OpSample], common: Sequence[OpSample]) -> list[FittedOperator]:
    """Return the operators of ``own``, and of ``common`` those that are not among them."""
    first = fit_operators(own)
    known = {(operator.name, operator.dtype) for operator in first}
    rest = [sample for sample in common if (sample.work.operator, sample.work.dtype) not in known]
    return [*first, *fit_operators(rest)]
