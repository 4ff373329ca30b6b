"""Values that all plans of a family share, so that a job can switch between the plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_shared", "shared_values"]


def shared_values(plan: TrainingPlan) -> dict[str, object]:
    """Return the values that every plan of a family must share with ``plan``, by their names.

    Layouts and recomputation in the backward pass may differ.
    """
    training = plan.plan.document["training"]
    return {
        "model": plan.plan.model_sha256,
        "loss": plan.loss,
        "optimizer": plan.optimizer,
        "samples per step": plan.samples_per_step,
        "micro-batches": plan.micro_batches,
        "clip norm": training["clip_norm"],
        "groups": training.get("groups"),
        "precision": training["precision"],
        **{f"input '{t.name}'": (t.dtype, t.shape) for t in plan.plan.inputs},
        **{f"state '{s.name}'": (s.kind, s.of, s.tensor.dtype, s.tensor.shape) for s in plan.state},
    }


def check_shared(plans: Iterable[TrainingPlan]) -> None:
    """Raise `UserError` if a plan differs from the first plan in a value that they must share."""
    first: TrainingPlan | None = None
    for plan in plans:
        if plan.start != "checkpoint":
            raise UserError(f"{plan.folder}: has weights of its own, expected a plan of a family")
        if first is None:
            first, expected = plan, shared_values(plan)
            continue
        _compare(first, expected, plan)


def _compare(first: TrainingPlan, expected: Mapping[str, object], plan: TrainingPlan) -> None:
    found = shared_values(plan)
    for what in [*expected, *found]:
        if expected.get(what) != found.get(what):
            raise UserError(
                f"{plan.folder}: {what}: expected that of {first.folder}, {expected.get(what)}, "
                f"got: {found.get(what)}"
            )
