"""What is asked of an elastic job, once, when it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tensoropt.runtime.support.errors import UserError

__all__ = ["JobSettings", "extends"]


@dataclass(frozen=True)
class JobSettings:
    """Train ``family`` on ``data`` until step ``steps``, at first with ``devices``.

    ``training`` are further fields of `TrainJob`: seeds, the learning rate, checkpoints. A
    recovery may go down to ``min_devices``. State is copied every ``snapshot_every`` steps (None:
    never). A generation that takes no step for ``stall_s`` seconds has failed (None: it may).
    ``grace_s`` is how long ranks go on without a coordinator. ``replace_stragglers`` moves the job
    away from a rank that stays behind.
    """

    name: str
    family: str
    data: str
    steps: int
    devices: int
    plan: str | None = None
    min_devices: int = 1
    snapshot_every: int | None = 50
    stall_s: float | None = None
    grace_s: float = 60.0
    replace_stragglers: bool = False
    training: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what tells one job from another, as JSON."""
        return asdict(self)


def extends(before: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Return whether ``asked`` is the job ``before`` with more steps. Both are `JobSettings.facts`.

    The learning rates of the steps taken must stay the same: a constant one has no end, but the end
    of another schedule must not change, else this raises `UserError`.
    """
    steps, training = asked["steps"], asked["training"]
    end = before["training"]["total_steps"]
    if before["training"]["schedule"] == "constant" and end == before["steps"]:
        end = steps
    same = {**before, "steps": steps, "training": {**before["training"], "total_steps": end}}
    as_before = {**asked, "training": {**training, "total_steps": end}}
    if steps < before["steps"] or same != as_before:
        return False
    if training["total_steps"] != end:
        raise UserError(
            f"--steps {steps}: the job '{before['name']}' has a {training['schedule']} learning "
            f"rate that ends at step {end}, expected --total-steps {end} too, or another --name"
        )
    return True
