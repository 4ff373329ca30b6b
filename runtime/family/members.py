"""What the plans of a family have in common, so that a job can go from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_alike", "shared"]


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
