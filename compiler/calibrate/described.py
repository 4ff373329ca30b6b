"""From measurements to the description of a device: the fit, and how far it is off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tensoropt.compiler.calibrate.agreement import agreeing
from tensoropt.compiler.calibrate.description import Description
from tensoropt.compiler.calibrate.fit import fit_collectives, fit_operators
from tensoropt.compiler.calibrate.held_out import (
    expected_error,
    measured_models,
    process_error,
)
from tensoropt.compiler.calibrate.samples import Measurements, OpSample, PlanSample
from tensoropt.compiler.calibrate.waiting import fit_waiting
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.exporter.collectives import DOMAIN

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

    basics, models = measured.basics, measured_models(measured.plans)
    if basics.process is not None:
        process = replace(basics.process, error=process_error(measured.plans))
        basics = replace(basics, process=process)
    expected = expected_error(measured.plans, fit, processes=basics.process is not None)
    return replace(whole, basics=basics, expected=expected, models=models)


def _fitted(identity: Identity, measured: Measurements, plans: Sequence[PlanSample]) -> Description:
    """Return the description with operators, collectives, and then what steps take beyond both."""
    linked = Description(
        identity.name,
        identity.base,
        identity.source,
        measured.machine,
        measured.basics,
        collectives=fit_collectives(measured.collectives),
    )
    own = [sample for plan in plans for sample in agreeing(plan, linked.device)]
    united, hints = _united(own, measured.common), measured.common
    apart = replace(linked, operators=fit_operators(united, hints))
    return replace(apart, waiting=fit_waiting(plans, apart.device))


def _united(own: Sequence[OpSample], common: Sequence[OpSample]) -> Iterator[OpSample]:
    """Yield the samples of plans, and of common operators those that plans say nothing of.

    What follows a collective is left out: a prediction knows no such contexts. It takes longer than
    in its place, as it reads what another core wrote, and was laid out anew; steps have that as
    waiting.
    """
    kept = [sample for sample in own if not any(map(_is_ours, sample.context))]
    ran = {_kind(sample) for sample in kept if sample.time_s}
    seen = {(_kind(sample), sample.context) for sample in kept}
    yield from kept
    for sample in common:
        is_known = (_kind(sample), sample.context) in seen
        if not is_known and (not sample.time_s or _kind(sample) not in ran):
            yield sample


def _is_ours(maker: str) -> bool:
    return maker.startswith(f"{DOMAIN}.")


def _kind(sample: OpSample) -> tuple[str, str]:
    return sample.work.operator, sample.work.dtype
