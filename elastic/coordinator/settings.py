"""The settings of an elastic job, fixed at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tensoropt.runtime.support.errors import UserError

__all__ = ["JobSettings", "extends"]


@dataclass(frozen=True)
class JobSettings:
    """The request to train ``family`` on ``data`` until step ``steps``, at first on ``devices``.

    ``training`` are further fields of `TrainJob`: seeds, the learning rate, checkpoints. Recovery
    may reduce the devices to ``min_devices``. State is copied in memory every ``snapshot_every``
    steps (None: never). A generation without a step for ``stall_s`` seconds has failed (None: no
    limit). Ranks continue without a coordinator for ``grace_s`` seconds. ``replace_stragglers``
    migrates the job away from a slow rank.
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
        """Return the settings as JSON; jobs with equal facts are the same job."""
        return asdict(self)


def extends(before: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Return whether ``asked`` is the job ``before`` with more steps. Both are `JobSettings.facts`.

    The learning rates of past steps must not change. A constant rate has no end; the end of any
    other schedule must stay the same, else this raises `UserError`.
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
