"""The work of each rank in a job: open its session, feed its slices, run, gather and compare."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from tensoropt.runtime.check.compare import compare, describe
from tensoropt.runtime.check.first_difference import first_difference
from tensoropt.runtime.check.layer_times import layer_times
from tensoropt.runtime.check.reference import Reference, drawn_text, one_device
from tensoropt.runtime.check.results import CheckResult, FirstDifference, LayerTime, OutputResult
from tensoropt.runtime.device.memory import return_freed
from tensoropt.runtime.device.provider import MemoryMeter, Provider
from tensoropt.runtime.device.providers import check_provider, provider_of
from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.caches import SharedCache, shared_caches, update_in_place
from tensoropt.runtime.session.inputs import Inputs, make_inputs
from tensoropt.runtime.session.opening import keep_outputs, open_session
from tensoropt.runtime.session.ranks import (
    gather,
    largest,
    slowest_s,
    wait_idle,
    whole_shape,
)
from tensoropt.runtime.session.rounding import use_rounding
from tensoropt.runtime.session.session import RankSession, check_custom_ops, use_custom_ops
from tensoropt.runtime.session.staged import check_staged
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.files import file_mode, may_replace
from tensoropt.runtime.support.job import Job
from tensoropt.runtime.support.options import OptionError, roles_of
from tensoropt.runtime.support.places import INPUT, Role, check_places

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["check_job", "run_job"]

_SHOW_S = 1.0  # interval between lines of progress


class _Facts(TypedDict):
    peak_bytes: int | None
    used_bytes: int | None
    nodes_on_cpu: int | None


def check_job(job: Job) -> list[Plan]:
    """Return the job's plans after all checks that are possible before ranks start.

    Checks the provider, the plans, the model's hash, the inputs, and that the plans have the same
    number of ranks. Raises `UserError`.
    """
    sources = [("plan", each) for each in job.plans] + [("model", job.model)] * bool(job.model)
    read = [Role(name, name, INPUT, path) for name, path in sources]
    check_places([*roles_of(job), *read])
    check_provider(job)
    check_custom_ops(job.custom_ops)
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
        check_staged(plan, cuda_graphs=job.cuda_graphs, debug=job.debug)
        make_inputs(job, plan.inputs, plan.dims)
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
        raise OptionError("{outputs} {0}: expected one plan, got: {1}", path, len(job.plans))
    if not may_replace(path):
        raise OptionError("{outputs} {0}: expected a file in an existing folder", path)


def run_job(job: Job, comm: MPI.Comm, link: LauncherLink) -> list[CheckResult]:
    """Run the job's plans on the ranks of ``comm``; the results are whole on rank 0 only.

    If a plan's sessions cannot be created, its result has the error. A failure during a run raises
    `UserError`: other ranks may wait for this rank, so the job cannot continue.
    """
    use_custom_ops(job.custom_ops)
    use_rounding(job.rounding)
    provider, asked, link = provider_of(job, comm), job, link.of_rank(comm.rank)
    if job.model is not None:
        link.show(f"running {job.model} on one device")
    reference = one_device(job, provider) if job.model is not None and comm.rank == 0 else None
    return_freed()
    wait_idle(comm)
    if job.model is not None:  # rank 0 chose the distribution from which all ranks draw inputs
        job = comm.bcast(None if reference is None else reference.job)
    results = [_run_plan(job, Plan.read(p), comm, provider, reference, link) for p in job.plans]
    times = () if reference is None else reference.times_s
    drawn = drawn_text(job, asked)
    return [replace(result, one_device_times_s=times, drawn=drawn) for result in results]


def _run_plan(
    job: Job,
    plan: Plan,
    comm: MPI.Comm,
    provider: Provider,
    reference: Reference | None,
    link: LauncherLink,
) -> CheckResult:
    predicted = plan.document["predicted"]
    result = CheckResult(
        str(plan.folder),
        plan.ranks,
        plan.mesh,
        provider=job.provider,
        predicted_time_s=predicted.get("latency_s", predicted["time_s"]),
        predicted_bytes=plan.process_bytes,
        expected_error=predicted["expected_error"],
        predicted_interval_s=predicted.get("interval_s"),
    )
    memory = provider.measure()
    link.show(f"{plan.folder}: loading {plan.ranks} graphs")
    session, refusal, error = open_session(job, plan, comm, provider)
    if session is None:
        return replace(result, error=error, passed=False if job.model else None)
    try:
        inputs = make_inputs(job, plan.inputs, plan.dims)
        caches = shared_caches(plan, session, inputs.shapes)
        kept = keep_outputs(session, plan, provider, {cache.present.name for cache in caches})
        _feed(session, inputs, caches, provider, plan.place(comm.rank))
        times = _take_steps(job, session, comm, link, len(plan.batches_of(comm.rank)))
        streams = plan.staged is not None and job.runs > 0
        interval_s = _interval_s(job, session, comm) if streams else None
        link.show(f"{plan.folder}: {'comparing' if job.model else 'joining'} the outputs")
        facts = _facts(session, provider, memory, comm)
        judged = _judge_outputs(job, plan, session, comm, reference, kept)
    except UserError as failure:
        raise UserError(f"{plan.folder}: {failure}") from None
    wait_idle(comm)
    if job.debug:
        link.show(f"{plan.folder}: comparing internal values")
    first, layers = _debug(job, plan, comm, provider, reference)
    passed = all(output.passed for output in judged) if job.model else None
    graphs = refusal or "captured" if job.cuda_graphs else None
    result = replace(result, outputs=judged, step_times_s=tuple(times), passed=passed)
    result = replace(result, first=first, layers=layers, interval_s=interval_s)
    return replace(result, cuda_graphs=graphs, assumed_dims=dict(inputs.assumed), **facts)


def _debug(
    job: Job, plan: Plan, comm: MPI.Comm, provider: Provider, reference: Reference | None
) -> tuple[FirstDifference | None, tuple[LayerTime, ...]]:
    """Return the plan's first difference and its layers' times, for a job with ``debug``."""
    if not job.debug:
        return None, ()
    try:
        first = first_difference(job, plan, comm, provider, reference)
        layers = layer_times(job, plan, make_inputs(job, plan.inputs, plan.dims), comm, provider)
    except UserError as failure:
        raise UserError(f"{plan.folder}: {failure}") from None
    wait_idle(comm)
    return first, layers


def _feed(
    session: RankSession,
    inputs: Inputs,
    caches: Mapping[SharedCache, Sequence[int]],
    provider: Provider,
    place: int,
) -> None:
    """Bind the parts of the inputs of a rank, by its ``place`` in the mesh.

    In-place caches get memory for input and output.
    """
    shared = {cache.past.name: cache for cache in caches}
    for name in inputs.tensors:
        if name not in session.inputs:  # another stage reads it
            continue
        part = inputs.part(name, place)
        if name not in shared:
            session.feed(name, part)
            continue
        cache = shared[name]
        shape = cache.present.layout.local_shape(caches[cache])
        array = provider.place(part) if shape == part.shape else provider.empty(shape, part.dtype)
        update_in_place(session, cache, array, part)


def _take_steps(
    job: Job, session: RankSession, comm: MPI.Comm, link: LauncherLink, batches: int
) -> list[float]:
    """Return the times of runs; a rank of a replica takes several ``batches``, all of one input."""

    def run() -> None:
        for _ in range(batches):
            session.run()

    link.show("the first step, which is not timed")
    session.run()
    times_s: list[float] = []
    next_s = 0.0
    for number in range(job.runs):
        if time.monotonic() >= next_s:
            link.show(f"step {number + 1} of {job.runs}")
            next_s = time.monotonic() + _SHOW_S
        times_s.append(slowest_s(comm, run))
    return times_s


def _interval_s(job: Job, session: RankSession, comm: MPI.Comm) -> float:
    """Return the median time between results of a stream, in which all stages work at once."""
    comm.Barrier()
    ends_s = []
    for _ in range(job.runs + 1):
        session.run()
        ends_s.append(time.perf_counter())
    own_s = statistics.median(end_s - begin_s for begin_s, end_s in pairwise(ends_s))
    return float(max(comm.allgather(own_s)))


def _facts(session: RankSession, provider: Provider, memory: MemoryMeter, comm: MPI.Comm) -> _Facts:
    """Return the memory and CPU-node measurements, each the maximum over the ranks."""
    return {
        "peak_bytes": largest(comm, memory.bytes()),
        "used_bytes": largest(comm, provider.used_bytes()),
        "nodes_on_cpu": largest(comm, session.nodes_on_cpu()),
    }


def _judge_outputs(
    job: Job,
    plan: Plan,
    session: RankSession,
    comm: MPI.Comm,
    reference: Reference | None,
    kept: Mapping[str, Array],
) -> tuple[OutputResult, ...]:
    """Judge the outputs, and write them to the job's file; returns results on rank 0 only.

    ``kept`` are outputs in fixed arrays, see `keep_outputs`. Every copy of an output, on all
    replicas of the plan, is gathered and judged, one at a time; the result is the worst.
    """
    rest = [t.name for t in plan.outputs if t.name in session.outputs and t.name not in kept]
    local, whole, judged = {**kept, **dict(session.results(rest))}, {}, []
    owned = comm.allgather({*session.outputs})
    for tensor in plan.outputs:
        # All ranks of the stage that computes an output have it.
        first = next(rank for rank, names in enumerate(owned) if tensor.name in names)
        part = local.get(tensor.name)
        if job.model is None and job.outputs is None:  # the values are not needed
            facts = whole_shape(tensor.name, part, tensor.layout, comm, first)
            if facts is not None:
                judged.append(OutputResult(tensor.name, facts[1], facts[0]))
            continue
        found: list[OutputResult] = []
        size, copies = tensor.layout.mesh.size, range(tensor.layout.copies)
        every = [(copy, first + own * size) for own in range(plan.replicas) for copy in copies]
        for number, (copy, begin) in enumerate(every[:1] if job.model is None else every):
            array = gather(tensor.name, part, tensor.layout, comm, copy, begin)
            if comm.rank == 0:
                assert array is not None
                result = _judge(job, plan, tensor.name, array, reference)
                ranks = [begin + source for source in tensor.layout.sources(copy)]
                found.append(_name_ranks(result, ranks) if number else result)
            if number == 0 and job.outputs is not None and array is not None:
                whole[tensor.name] = array
        if found:  # on rank 0
            judged.append(max(found, key=lambda r: (r.passed is False, r.absolute or 0.0)))
    if comm.rank == 0 and job.outputs is not None:
        _write_outputs(Path(job.outputs), whole)
    return tuple(judged)


def _judge(
    job: Job, plan: Plan, name: str, array: Array, reference: Reference | None
) -> OutputResult:
    if reference is None:
        return describe(name, array)
    expected, again = reference.outputs[name], partial(reference.rerun_output, name)
    result = compare(name, array, expected, job, plan.rounds(job.rounding), again)
    return replace(result, by_rewrites=reference.by_rewrites(name))


def _name_ranks(result: OutputResult, ranks: Sequence[int]) -> OutputResult:
    """Add the ranks of a replica to the note of its result, if the result is wrong."""
    if result.passed is not False:
        return result
    where = f"on rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    return replace(result, note=f"{result.note}, {where}" if result.note else where)


def _write_outputs(path: Path, outputs: dict[str, Array]) -> None:
    """Write an .npz file as a whole or not at all. Raises `UserError`."""
    # Strings as numpy's own string type: an array of objects would be pickled.
    arrays = {n: a.astype(np.str_) if a.dtype.hasobject else a for n, a in outputs.items()}
    try:
        descriptor, aside = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            Path(aside).chmod(file_mode())
            Path(aside).replace(path)
        finally:
            with suppress(FileNotFoundError):
                Path(aside).unlink()
    except OSError as error:
        raise UserError(f"--outputs {path}: {cause_of(error)}") from None
