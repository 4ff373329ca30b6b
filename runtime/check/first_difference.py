"""Search for the first value inside a plan that differs from the one-device run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensoropt.runtime.check.compare import compare
from tensoropt.runtime.check.reference import Reference
from tensoropt.runtime.check.results import FirstDifference, OutputResult
from tensoropt.runtime.check.values import Inner, inner_values
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.layout.mesh_layout import MeshLayout, gather_global, parse_layout
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.inputs import Inputs, make_inputs, perturb
from tensoropt.runtime.session.ranks import make_on_all
from tensoropt.runtime.session.session import (
    VALUE_RUNS,
    RankSession,
    every_value_session,
    one_device_session,
)
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import Job

if TYPE_CHECKING:
    import onnx
    from mpi4py import MPI

__all__ = ["first_difference"]


def first_difference(
    job: Job, plan: Plan, comm: MPI.Comm, provider: Provider, reference: Reference | None
) -> FirstDifference | None:
    """Return the first value in program order that differs, on rank 0; elsewhere None.

    Every rank calls this; ``reference`` is rank 0's. Both the plan and the model run again,
    unoptimised, with their intermediate values as outputs. The result on rank 0 has the number of
    compared values. Its ``node`` is None if none differs; its ``note`` is set if a graph cannot run
    this way.
    """
    values = comm.bcast(_values(plan, reference) if comm.rank == 0 else None)
    inputs, size = make_inputs(job, plan.inputs, plan.dims), max(1, -(-len(values) // VALUE_RUNS))
    found, compared = FirstDifference(), 0
    for start in range(0, len(values), size):
        part = values[start : start + size]
        run = _Run(plan, comm, inputs, part)
        session, error = make_on_all(comm, partial(run.session, job, provider))
        if session is None:
            found = FirstDifference(note=str(error))
            break
        parts = [comm.gather(array) for array in run.arrays(session)]
        if reference is not None:
            found, agreeing = _search(job, plan, part, parts, reference)
            compared += agreeing + (found.node is not None)
        if comm.bcast(found != FirstDifference()):
            break
    if reference is None:
        return None
    made = sum(len(r["results"]) for r in plan.document["strategies"] if r["op"] != "Constant")
    return replace(found, compared=compared, values=made)


def _search(
    job: Job,
    plan: Plan,
    part: Sequence[Inner],
    parts: Sequence[Sequence[Array | None] | None],
    reference: Reference,
) -> tuple[FirstDifference, int]:
    """Return the first difference among some values, and the number of equal values before it.

    Returns a note if the model does not run unoptimised on one device.
    """
    try:
        oracle = _Oracle(reference, [value.name for value in part])
    except UserError as error:  # some models run only when optimised
        return FirstDifference(note=f"one device: {error}"), 0
    for number, (value, arrays) in enumerate(zip(part, parts, strict=True)):
        assert arrays is not None
        expected = oracle.outputs[value.name]
        row = plan.document["strategies"][value.row]
        layout = parse_layout(row["results"][value.result], plan.mesh).for_shape(expected.shape)
        for copy in range(layout.copies):
            result = _compare_copy(job, plan, value, layout, copy, arrays, expected, oracle)
            if result is not None and not result.passed:
                found = _describe(plan, value, layout, copy, arrays, expected, result, job)
                return found, number
    return FirstDifference(), len(part)


def _values(plan: Plan, reference: Reference | None) -> list[Inner]:
    import onnx

    assert reference is not None
    model = _model(reference)
    graph = onnx.load(plan.graph(0), load_external_data=False).graph
    return list(inner_values(graph, model.graph, plan.document["strategies"]))


def _model(reference: Reference) -> onnx.ModelProto:
    import onnx

    if reference.seeded is not None:
        return onnx.load_model_from_string(reference.seeded)
    return onnx.load(str(reference.job.model), load_external_data=False)


@dataclass(frozen=True)
class _Run:
    """One run of a rank's graph with some of its intermediate values as outputs."""

    plan: Plan
    comm: MPI.Comm
    inputs: Inputs
    part: Sequence[Inner]

    def session(self, job: Job, provider: Provider) -> RankSession:
        import onnx

        graph = self.plan.graph(self.comm.rank)
        model = onnx.load(graph, load_external_data=False)
        _add_outputs(model, [value.local for value in self.part])
        threads = job.threads or 1
        return every_value_session(
            model.SerializeToString(), graph.parent, threads, provider=provider
        )

    def arrays(self, session: RankSession) -> list[Array | None]:
        """Run, and return this rank's part of each value, None if its graph does not have it."""
        for name in self.inputs.tensors:
            if name in session.inputs:
                session.feed(name, self.inputs.part(name, self.comm.rank))
        session.run()
        made = dict(session.results({value.local for value in self.part}))
        return [made.get(value.local) for value in self.part]


def _add_outputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Make some of a graph's values outputs, in addition to its own outputs."""
    import onnx

    outputs = {output.name for output in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    wanted = (name for name in dict.fromkeys(names) if name in made and name not in outputs)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)


class _Oracle:
    """Expected values: intermediate values of the unoptimised model on one device."""

    def __init__(self, reference: Reference, names: Sequence[str]) -> None:
        self.reference, self.names = reference, names
        self.outputs = self._run(False)
        self._again: dict[str, Array] | None = None

    def rerun(self, name: str) -> Array | None:
        """Return a value from another run with other rounding."""
        if self._again is None:
            self._again = self._run(True)
        return self._again.get(name)

    def _run(self, otherwise: bool) -> dict[str, Array]:
        reference = self.reference
        model = _model(reference)
        _add_outputs(model, self.names)
        path = Path(str(reference.job.model))
        text = model.SerializeToString()
        session = one_device_session(path, reference.provider, changed=text, optimised=False)
        for name in reference.inputs.tensors:
            array = reference.inputs.array(name)
            session.feed(name, perturb(array, name) if otherwise else array)
        session.run()
        return dict(session.results(set(self.names)))


def _compare_copy(
    job: Job,
    plan: Plan,
    value: Inner,
    layout: MeshLayout,
    copy: int,
    arrays: Sequence[Array | None],
    expected: Array,
    oracle: _Oracle,
) -> OutputResult | None:
    """Compare one replica of a value; None if a rank does not have its part."""
    own = {rank: arrays[rank] for rank in layout.sources(copy)}
    found = {rank: array for rank, array in own.items() if array is not None}
    if len(found) < len(own):
        return None
    if len({(array.shape, array.dtype) for array in found.values()}) > 1:
        return OutputResult(value.name, "", (), passed=False, note="ranks have different shapes")
    whole = gather_global(found, layout, copy)
    again = lambda: oracle.rerun(value.name)  # noqa: E731
    return compare(value.name, whole, expected, job, plan.rounds(job.rounding), again)


def _describe(
    plan: Plan,
    value: Inner,
    layout: MeshLayout,
    copy: int,
    arrays: Sequence[Array | None],
    expected: Array,
    result: OutputResult,
    job: Job,
) -> FirstDifference:
    row = plan.document["strategies"][value.row]
    ranks = layout.sources(copy)
    wrong = [
        r for r in ranks if not layout.is_partial and _is_wrong(arrays[r], layout, r, expected, job)
    ]
    texts = row["results"][value.result]
    found = FirstDifference(
        node=row["node"],
        op=row["op"],
        tensor=value.name,
        layout=tuple(texts),
        ranks=tuple(wrong or ranks),
        shape=tuple(expected.shape),
        absolute=result.absolute,
        note=result.note,
    )
    parts = {rank: array for rank in ranks if (array := arrays[rank]) is not None}
    if len({(array.shape, array.dtype) for array in parts.values()}) > 1:
        return found
    whole = gather_global(parts, layout, copy)
    return replace(found, **_worst(whole, expected)) if whole.shape == expected.shape else found


def _is_wrong(
    array: Array | None, layout: MeshLayout, rank: int, expected: Array, job: Job
) -> bool:
    """Return whether a rank's own part differs."""
    if array is None or array.shape != layout.local_shape(expected.shape):
        return True
    try:
        own = layout.real(array, expected.shape, rank)
        return not compare("", own, layout.part_of(expected, rank), job).passed
    except UserError:
        return True


def _worst(found: Array, expected: Array) -> dict[str, Any]:
    """Return the index of the largest difference of two arrays, with both values."""
    if not found.size or found.dtype.hasobject:
        return {}
    a, b = (np.asarray(one, dtype=np.float64) for one in (found, expected))
    with np.errstate(invalid="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    at = int(np.argmax(np.where(np.isnan(distance), np.inf, distance)))
    index = tuple(int(i) for i in np.unravel_index(at, found.shape))
    return {"index": index, "expected": str(expected[index]), "got": str(found[index])}
