"""What the plans of a family have in common, so that a job can go from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensoropt.elastic.family.document import INITIAL_FILE
from tensoropt.elastic.family.family import Family
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.checkpoint import check_checkpoint
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_alike", "check_members", "shared"]


def shared(plan: TrainingPlan) -> dict[str, object]:
    """Return what every plan of a family must have as ``plan`` has it, by what it is called.

    Layouts, and what is recomputed in the backward pass, are a plan's own.
    """
    said = plan.plan.document["training"]
    return {
        "model": plan.plan.model_sha256,
        "loss": plan.loss,
        "optimizer": plan.optimizer,
        "samples per step": plan.samples_per_step,
        "micro-batches": plan.micro_batches,
        "clip norm": said["clip_norm"],
        "precision": said["precision"],
        **{f"input '{t.name}'": (t.dtype, t.shape) for t in plan.plan.inputs},
        **{f"state '{s.name}'": (s.kind, s.of, s.tensor.dtype, s.tensor.shape) for s in plan.state},
    }


def check_alike(plans: Iterable[TrainingPlan]) -> None:
    """Raise `UserError` where a plan differs from the first one in what they must share."""
    first: TrainingPlan | None = None
    for plan in plans:
        if plan.start != "checkpoint":
            raise UserError(f"{plan.folder}: has weights of its own, expected a plan of a family")
        if first is None:
            first, expected = plan, shared(plan)
            continue
        _compare(first, expected, plan)


def _compare(first: TrainingPlan, expected: Mapping[str, object], plan: TrainingPlan) -> None:
    found = shared(plan)
    for what in [*expected, *found]:
        if expected.get(what) != found.get(what):
            raise UserError(
                f"{plan.folder}: {what}: expected that of {first.folder}, {expected.get(what)}, "
                f"got: {found.get(what)}"
            )


def check_members(family: Family) -> None:
    """Read all of a family; raises `UserError` for what is damaged or does not belong."""
    for name in family.files:
        family.check_file(name)
    plans = [TrainingPlan.of(Plan.load(plan.path)) for plan in family.plans]
    check_alike(plans)
    for row, plan in zip(family.plans, plans, strict=True):
        if (plan.plan.ranks, plan.samples_per_step) != (row.devices, family.samples_per_step):
            raise UserError(
                f"{row.path}: expected a plan of {row.devices} ranks that takes "
                f"{family.samples_per_step} samples per step, got: {plan.plan.ranks} and "
                f"{plan.samples_per_step}"
            )
        if plan.plan.model_sha256 != family.model_sha256:
            raise UserError(f"{row.path}: is of another model than family.json")
        check_checkpoint(plan, family.folder / INITIAL_FILE)
