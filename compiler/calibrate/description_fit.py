"""Device descriptions from measurements: the fit and its expected error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tensoropt.compiler.calibrate.agreement import scale_to_step
from tensoropt.compiler.calibrate.cross_validation import (
    expected_error,
    measured_models,
    process_error,
)
from tensoropt.compiler.calibrate.description import Description
from tensoropt.compiler.calibrate.fit import fit_collectives, fit_operators
from tensoropt.compiler.calibrate.samples import Measurements, OpSample, PlanSample
from tensoropt.compiler.calibrate.wait_times import fit_waiting
from tensoropt.compiler.cost.device import Device
from tensoropt.dialects.onnx import ATTENTIONS
from tensoropt.runtime.support.collectives import DOMAIN

__all__ = ["Identity", "describe"]


@dataclass(frozen=True)
class Identity:
    """The name of a description, the ``base`` for all that was not measured, and its source."""

    name: str
    base: Device
    source: str


def describe(identity: Identity, measured: Measurements, *, checked: bool) -> Description:
    """Return the description that is fitted to the measurements.

    With ``checked`` it has the expected error, by cross-validation with a fit per plan.
    """
    whole = _fit(identity, measured, measured.plans)
    if not checked:
        return whole

    def fit(plans: Sequence[PlanSample]) -> Device:
        return _fit(identity, measured, plans).device

    basics, models = measured.basics, measured_models(measured.plans)
    if basics.process is not None:
        process = replace(basics.process, error=process_error(measured.plans))
        basics = replace(basics, process=process)
    expected = expected_error(measured.plans, fit, processes=basics.process is not None)
    return replace(whole, basics=basics, expected=expected, models=models)


def _fit(identity: Identity, measured: Measurements, plans: Sequence[PlanSample]) -> Description:
    """Fit collectives, then operators, then the waiting of steps beyond both."""
    linked = Description(
        identity.name,
        identity.base,
        identity.source,
        measured.machine,
        measured.basics,
        collectives=fit_collectives(measured.collectives),
    )
    own = [sample for plan in plans for sample in scale_to_step(plan, linked.device)]
    united, hints = _merge(own, measured.common), measured.common
    apart = replace(linked, operators=fit_operators(united, hints))
    return replace(apart, waiting=fit_waiting(plans, apart.device))


def _merge(own: Sequence[OpSample], common: Sequence[OpSample]) -> Iterator[OpSample]:
    """Yield the samples of plans, and the samples of common operators that no plan measured.

    Operators after a collective are left out, as predictions have no such contexts. They take
    longer than elsewhere, as they read data that another core wrote in another layout. The fit of
    waiting accounts for that.
    """
    kept = [s for s in own if not any(map(_is_collective, s.context))]
    ran = {_kind(sample) for sample in kept if sample.time_s}
    seen = {(_kind(sample), sample.context) for sample in kept}
    yield from kept
    for sample in common:
        is_known = (_kind(sample), sample.context) in seen
        if not is_known and (not sample.time_s or _kind(sample) not in ran):
            yield sample


def _is_collective(maker: str) -> bool:
    return maker.startswith(f"{DOMAIN}.") and maker not in ATTENTIONS


def _kind(sample: OpSample) -> tuple[str, str]:
    return sample.work.operator, sample.work.dtype
