"""Measurements made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.planned import PlannedOp, PlannedStep
from tensoropt.compiler.calibrate.samples import (
    Basics,
    Measurements,
    OpSample,
    Peak,
    PlanSample,
)
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.cost.expected_error import MeasuredModel
from tensoropt.compiler.cost.machine import Machine
from tensoropt.compiler.cost.overlap import Overlap

__all__ = ["BASICS", "MACHINE", "measured", "plan"]

BASICS = Basics(
    Floor(0.0, 1e-6, 1e-6), {"float32": Peak(1e11, 0.5)}, 1e10, 2**30, overlap=Overlap(2e-6, 0.25)
)
MACHINE = Machine("a processor", "cpu", 2, 1, "1.31")
LAUNCH_S, RATE = 1e-6, 1e10


def plan(model: str, flops: Sequence[float], off: float = 1.0) -> PlanSample:
    """Return a plan of products that take what a line says, times ``off``."""
    ops = [
        OpSample(Work("MatMul", "float32", each, 0.0), (), off * (LAUNCH_S + each / RATE))
        for each in flops
    ]
    step = PlannedStep(1, 1, tuple((PlannedOp(op.work, op.context), 1) for op in ops), ())
    measured = sum(op.time_s for op in ops)
    return PlanSample(MeasuredModel(model, model * 8), "fastest", step, measured, ops)


def measured(plans: Sequence[PlanSample]) -> Measurements:
    """Return measurements of plans and of nothing else."""
    return Measurements(MACHINE, BASICS, plans=[*plans])
