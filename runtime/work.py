"""What every rank does in a job: make its session, feed it its slices, run, gather, compare."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.compare import compare, describe
from tensoropt.runtime.device.provider import Memory, Provider, check_provider, provider_of
from tensoropt.runtime.dtypes import Array
from tensoropt.runtime.errors import UserError
from tensoropt.runtime.files import file_mode
from tensoropt.runtime.inputs import Inputs, make_inputs
from tensoropt.runtime.job import CheckResult, Job, OutputResult
from tensoropt.runtime.plan import Plan
from tensoropt.runtime.ranks import (
    gather,
    largest,
    made_on_all,
    share_of_cores,
    slowest_s,
    timed_s,
    wait_idle,
)
from tensoropt.runtime.session import Session, one_device_session, rank_session

__all__ = ["check_job", "run_job"]


def check_job(job: Job) -> list[Plan]:
    """Return the job's plans after checking all that can be checked before ranks start.

    Raises `UserError`: the provider, plans, the model's hash, inputs, and that the plans go
    together.
    """
    check_provider(job)
    plans = [_inference_plan(folder) for folder in job.plans]
    for plan in plans[1:]:
        if plan.ranks != plans[0].ranks:
            raise UserError(
                f"{plan.folder}: plans of one launch need equal numbers of ranks, "
                f"expected {plans[0].ranks} as in {plans[0].folder}, got: {plan.ranks}"
            )
    for plan in plans:
        if job.model is not None:
            plan.check_model(Path(job.model))
        make_inputs(job, plan.inputs)
    _check_outputs_path(job)
    return plans


def _inference_plan(folder: str) -> Plan:
    plan = Plan.load(folder)
    if "training" in plan.document:
        raise UserError(f"{folder}: is a plan for training, expected --train")
    return plan


def _check_outputs_path(job: Job) -> None:
    if job.outputs is None:
        return
    path = Path(job.outputs)
    if len(job.plans) > 1:
        raise UserError(f"--outputs {path}: expected one plan, got: {len(job.plans)}")
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"--outputs {path}: expected a file in an existing folder")


def run_job(job: Job, comm: Any) -> list[CheckResult]:
    """Run the job's plans on the ranks of ``comm``; the results are whole on rank 0 only.

    A plan whose sessions cannot be made is an error of that plan. A failure while running raises
    `UserError`: the other ranks then wait for this one, so the job cannot go on.
    """
    provider = provider_of(job, comm)
    expected: dict[str, Array] = {}
    times: list[float] = []
    if job.model is not None and comm.rank == 0:
        expected, times = _one_device(job, provider)
    wait_idle(comm)
    results = [_run_plan(job, Plan.read(p), comm, provider, expected) for p in job.plans]
    return [replace(result, one_device_times_s=tuple(times)) for result in results]


def _one_device(job: Job, provider: Provider) -> tuple[dict[str, Array], list[float]]:
    inputs = make_inputs(job, Plan.read(job.plans[0]).inputs)
    try:
        session = one_device_session(Path(str(job.model)), provider)
        for name in inputs.tensors:
            session.feed(name, inputs.array(name))
        session.run()
        times = [timed_s(session.run) for _ in range(job.runs)]
    except UserError as error:
        hint = " (inputs are drawn, see --int-range and --inputs)" if job.inputs is None else ""
        raise UserError(f"the one-device run failed: {error}{hint}") from None
    return session.fetch(), times


def _run_plan(
    job: Job, plan: Plan, comm: Any, provider: Provider, expected: dict[str, Array]
) -> CheckResult:
    predicted = plan.document["predicted"]
    result = CheckResult(
        str(plan.folder),
        plan.ranks,
        plan.mesh,
        provider=job.provider,
        predicted_time_s=predicted["time_s"],
        predicted_bytes=predicted["memory_bytes"],
    )
    memory = provider.measure()
    session, refusal, error = _open(job, plan, comm, provider)
    if session is None:
        return replace(result, error=error, passed=False if job.model else None)
    try:
        times = _take_steps(job, session, make_inputs(job, plan.inputs), comm)
        facts = _facts(session, provider, memory, comm)
        outputs = _outputs(job, plan, session, comm)
    except UserError as failure:
        raise UserError(f"{plan.folder}: {failure}") from None
    judged = _judge(job, plan, outputs, expected) if comm.rank == 0 else ()
    wait_idle(comm)
    passed = all(output.passed for output in judged) if job.model else None
    facts["cuda_graphs"] = refusal or "captured" if job.cuda_graphs else None
    return replace(result, outputs=judged, step_times_s=tuple(times), passed=passed, **facts)


def _open(
    job: Job, plan: Plan, comm: Any, provider: Provider
) -> tuple[Session | None, str | None, str | None]:
    """Return the rank's session, why it has no CUDA graphs that were asked for, and an error.

    All ranks go without CUDA graphs where one has to: with them the first run is three.
    """
    threads = job.threads or share_of_cores(comm)
    graph, refusal = plan.graph(comm.rank), None
    for graphs in (True, False) if job.cuda_graphs else (False,):
        make = partial(rank_session, graph, threads, provider=provider, graphs=graphs)
        session, error = made_on_all(comm, make)
        if error is None:
            return session, refusal, None
        refusal = f"not captured: {error}"
    return None, refusal, error


def _take_steps(job: Job, session: Session, inputs: Inputs, comm: Any) -> list[float]:
    for name, tensor in inputs.tensors.items():
        session.feed(name, tensor.layout.local_slice(inputs.array(name), comm.rank))
    session.run()
    return [slowest_s(comm, session.run) for _ in range(job.runs)]


def _facts(session: Session, provider: Provider, memory: Memory, comm: Any) -> dict[str, Any]:
    """Return what was measured beside times: of the rank that has most."""
    return {
        "peak_bytes": largest(comm, memory.bytes()),
        "used_bytes": largest(comm, provider.used_bytes()),
        "nodes_on_cpu": largest(comm, session.nodes_on_cpu()),
    }


def _outputs(job: Job, plan: Plan, session: Session, comm: Any) -> dict[str, Array]:
    local = session.fetch()
    whole = {t.name: gather(t.name, local[t.name], t.layout, comm) for t in plan.outputs}
    if comm.rank == 0 and job.outputs is not None:
        _write_outputs(Path(job.outputs), whole)
    return whole


def _judge(
    job: Job, plan: Plan, outputs: dict[str, Array], expected: dict[str, Array]
) -> tuple[OutputResult, ...]:
    if job.model is None:
        return tuple(describe(name, array) for name, array in outputs.items())
    coarse = plan.is_quantised
    return tuple(compare(n, array, expected[n], job, coarse) for n, array in outputs.items())


def _as_text(array: Array) -> Array:
    """Return strings as numpy's own type for them, which a file holds without pickled objects."""
    return array.astype(np.str_) if array.dtype.hasobject else array


def _write_outputs(path: Path, outputs: dict[str, Array]) -> None:
    """Write an .npz file beside its place, then move it there: never half a file."""
    outputs = {name: _as_text(array) for name, array in outputs.items()}
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **outputs)  # type: ignore[arg-type]
        Path(aside).chmod(file_mode())
        Path(aside).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(aside).unlink()
