"""Requests to change a job's devices or plan."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from tensoropt.elastic.control import METHODS, RefusedError, SwitchResult
from tensoropt.elastic.coordinator.job import Job
from tensoropt.elastic.coordinator.switch import Switch
from tensoropt.elastic.generation.messages import STOP
from tensoropt.runtime.family.family import FamilyPlan
from tensoropt.runtime.support.errors import UserError

__all__ = ["begin_switch"]


def begin_switch(
    job: Job,
    devices: int | None,
    name: str | None,
    to: Sequence[str] | None,
    method: str,
    future: Future[SwitchResult],
) -> None:
    """Start a switch to ``devices`` (None: the same number), a plan by ``name``, or devices ``to``.

    ``future`` ends with the switch, or with a `RefusedError`: the job then continues unchanged.
    """
    try:
        _check(job, method)
        before, plan = _plans(job, devices, name)
        chosen = job.choose_devices(plan.devices, to)
        job.switch = Switch(before.devices, plan, chosen, method, future)
        _begin(job, job.switch)
    except (RefusedError, UserError) as error:
        if job.switch is not None and job.switch.future is future:
            job.switch = None
            job.enter("training")
        future.set_exception(error if isinstance(error, RefusedError) else RefusedError(str(error)))


def _check(job: Job, method: str) -> None:
    if method not in METHODS:
        raise RefusedError(f"method: expected one of {', '.join(METHODS)}, got: {method}")
    if job.stops:
        raise RefusedError("the job is being stopped", is_conflict=True)
    if job.switch is not None:
        plan = job.switch.plan.name
        raise RefusedError(f"a switch to plan {plan} is under way", is_conflict=True)
    if job.state != "training":
        raise RefusedError(f"the job is {job.state}, expected training", is_conflict=True)


def _plans(job: Job, devices: int | None, name: str | None) -> tuple[FamilyPlan, FamilyPlan]:
    """Return the running plan and the requested one. Raises `RefusedError`."""
    assert job.current is not None
    before = job.current.plan
    if devices is None:
        return before, before
    plan = job.plan_for(devices, name)
    if plan.name == before.name:
        raise RefusedError(f"runs with plan {plan.name} already", is_conflict=True)
    return before, plan


def _begin(job: Job, switch: Switch) -> None:
    if switch.method == "stop-resume":
        job.enter("switching")
        assert job.current is not None
        job.current.ask(STOP)
        return
    job.enter("preparing")
    job.event("preparing", f"{switch.plan.devices} devices (plan {switch.plan.name})")
    job.launch(switch.plan, switch.devices)
