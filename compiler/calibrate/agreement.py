"""Correction of traced node times that exceed the measured time of their step.

A plan is timed, and then traced node by node. Other work, or another guest of the same host, can
slow either run for seconds. If nodes add up to more than their step, the trace was slowed, and all
nodes are scaled by the same factor. If the step took longer than its nodes, ranks may have waited
for each other, so nothing is corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.compiler.calibrate.samples import OpSample, PlanSample
from tensoropt.compiler.cost.device import Device

__all__ = ["scale_to_step"]

_LEAST = 0.5  # smallest factor: a shorter step cannot be the traced step


def scale_to_step(plan: PlanSample, device: Device) -> Iterator[OpSample]:
    """Yield the nodes of a plan with times that add up to at most the time of its step.

    ``device`` predicts the collectives of the step. Linear in the nodes.
    """
    traced_s = sum(sample.count * sample.time_s for sample in plan.ops)
    left_s = plan.measured_s - plan.step.sends_s(device)
    part = max(min(left_s / traced_s, 1.0), _LEAST) if traced_s else 1.0
    yield from (replace(sample, time_s=part * sample.time_s) for sample in plan.ops)
