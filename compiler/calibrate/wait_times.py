"""Fit of the time that ranks wait for each other in a step, beyond its operators and collectives.

Operators are timed as the mean of the ranks, collectives back to back. In a step, ranks reach a
collective at different times, and all wait for the last: a constant per collective, and a share of
the compute time before it. Both factors are fitted per number of ranks, by non-negative least
squares of relative errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tensoropt.compiler.calibrate.fit import non_negative
from tensoropt.compiler.calibrate.samples import PlanSample
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.measurements import Waiting

__all__ = ["fit_waiting"]

_LEAST = 4  # plans of a number of ranks, for two factors


def fit_waiting(plans: Sequence[PlanSample], device: Device) -> Mapping[int, Waiting]:
    """Return the waiting by number of ranks, beyond the step that ``device`` predicts."""
    by_ranks: dict[int, list[PlanSample]] = defaultdict(list)
    for plan in plans:
        if plan.step.ranks > 1:
            by_ranks[plan.step.ranks].append(plan)
    return {ranks: _fit(own, device) for ranks, own in by_ranks.items() if len(own) >= _LEAST}


def _fit(plans: Sequence[PlanSample], device: Device) -> Waiting:
    measured = np.array([plan.measured_s for plan in plans])
    rest = measured - np.array([plan.step.time_s(device) for plan in plans])
    terms = [[sum(n for _, n in p.step.sends), p.step.ops_s(device)] for p in plans]
    factors = non_negative(np.array(terms, dtype=np.float64), rest, measured**-2.0)
    return Waiting(float(factors[0]), float(factors[1]))
