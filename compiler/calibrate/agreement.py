"""What nodes of a plan took, where they were traced while the machine was slower than before.

A plan is timed, and then traced node by node. Other work, or another guest of the same host, makes
either slower for seconds. Nodes that add up to more than their step were slowed, all alike as far
as anybody knows; a step that took longer than its nodes may as well have waited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.compiler.calibrate.samples import OpSample, PlanSample
from tensoropt.compiler.cost.device import Device

__all__ = ["agreeing"]

_LEAST = 0.5  # of what was traced: a step of less is not the same step


def agreeing(plan: PlanSample, device: Device) -> Iterator[OpSample]:
    """Yield the nodes of a plan with times that add up to no more than its step.

    ``device`` knows the collectives. Linear in the nodes.
    """
    traced_s = sum(sample.count * sample.time_s for sample in plan.ops)
    left_s = plan.measured_s - plan.step.sends_s(device)
    part = max(min(left_s / traced_s, 1.0), _LEAST) if traced_s else 1.0
    yield from (replace(sample, time_s=part * sample.time_s) for sample in plan.ops)
