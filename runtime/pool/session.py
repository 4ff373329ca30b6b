"""`Session`: runs of a plan on whole arrays, by ranks that are started once."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from tensoropt.runtime.plan.dims import bound
from tensoropt.runtime.plan.plan import Plan, Tensor
from tensoropt.runtime.pool.blocks import Wanted
from tensoropt.runtime.pool.pool import GRACE_S, Pool, start
from tensoropt.runtime.session.inputs import (
    as_dtype,
    check_dtype,
    check_names,
    check_parts,
    match_names,
    match_shapes,
)
from tensoropt.runtime.session.staged import check_staged
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.dtypes import STRING, Array, as_array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean
from tensoropt.runtime.support.options import shows_options
from tensoropt.runtime.support.rank_options import SessionArguments, SessionOptions

__all__ = ["Session"]


class Session(Closing):
    """The ranks of the plan in a folder, ready to run; a context manager that ends them.

    ``threads`` is the number per rank: None divides the machine's cores. ``dims`` sets symbolic
    dimensions for all runs; the others may differ between runs. ``provider`` is "cpu" or "cuda".
    With "cuda", ``share_gpus`` allows more ranks than GPUs, and ``cuda_graphs`` requests CUDA
    graphs, with which all runs have the sizes of the first run. ``custom_ops`` are libraries of
    operators. ``rounding`` is "exact", "model" or "fast": the rounding that ONNX Runtime may add to
    models with quantised values. Each run fails after ``stall_s`` seconds, and starting the ranks
    after ``start_timeout_s``, by default ``stall_s``.

    Thread-safe: runs are queued. Raises `UserError` if the plan cannot be run.
    """

    @shows_options(SessionOptions, SessionArguments)
    def __init__(self, plan: Path | str, **options: Unpack[SessionArguments]) -> None:
        own = SessionOptions(**options)
        self.plan = _inference_plan(plan)
        self._dims = self.plan.settle(own.dims)
        check_staged(self.plan, cuda_graphs=own.cuda_graphs)
        self._has_graphs = own.cuda_graphs
        self._is_sized = True
        self._inputs = {tensor.name: tensor for tensor in self.plan.run_inputs}
        self._outputs = {tensor.name: tensor for tensor in self.plan.run_outputs}
        self._pool: Pool = start(self.plan, "inference", own)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of a run, each with a name, a dtype, and a shape of sizes and symbolic names.

        A plan on replicas takes several batches of the model, in sequence along dimension 0.
        """
        return self.plan.run_inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs of a run, in the form of `inputs`."""
        return self.plan.run_outputs

    @property
    def is_alive(self) -> bool:
        """True if all ranks are running."""
        return self._pool.is_alive

    @property
    def silent_s(self) -> float:
        """Seconds that the current run has been without an answer; 0 without a run."""
        return self._pool.silent_s

    @property
    def cuda_graphs(self) -> str | None:
        """State of CUDA graphs: "captured", or the reason against; None if not requested."""
        message, _ = self._pool.call({"facts": True})
        found: str | None = message["cuda_graphs"]
        return found

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the ranks, by rank; empty if they have ended."""
        return self._pool.pids

    def run(
        self, inputs: Mapping[str, ArrayLike], outputs: Collection[str] | None = None
    ) -> dict[str, Array]:
        """Run once on whole arrays, by input name; return all whole outputs, or ``outputs``.

        The returned arrays belong to the caller. The inputs may be reused immediately. Arrays from
        `empty`, or from an earlier run, are read without a copy.

        Raises `UserError` if inputs do not fit, before they reach any rank, or if all ranks refuse
        them. Raises `RankFailedError` if a rank ended, after which all ranks have ended.
        """
        arrays, dims = self._check_inputs(inputs)
        names = self._output_names(outputs)
        if self._has_graphs:  # a captured graph has fixed sizes and writes all outputs
            self._dims = dims
        asked = list(self._outputs) if self._has_graphs else names
        room = {name: sizes for name in asked if (sizes := _sizes(self._outputs[name], dims))}
        found = self._run(asked, arrays, room if self._is_sized else {})
        return {name: found[name] for name in names}

    def run_many(
        self,
        batches: Iterable[Mapping[str, ArrayLike]],
        outputs: Collection[str] | None = None,
    ) -> Iterator[dict[str, Array]]:
        """Yield the result of `run` for each of ``batches``, in their order.

        Several are in progress at a time, so that the ranks of all stages have work. At most as
        many are read ahead. Raises as `run` does.
        """
        waiting: deque[Future[dict[str, Array]]] = deque()
        with ThreadPoolExecutor(self._pool.in_flight) as threads:
            for inputs in batches:
                waiting.append(threads.submit(self.run, inputs, outputs))
                if len(waiting) == self._pool.in_flight:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _run(
        self, names: list[str], arrays: Mapping[str, Array], room: Mapping[str, Wanted]
    ) -> Mapping[str, Array]:
        """Run once; after a failure, run again without relying on the plan's sizes of outputs.

        A model that draws random numbers may have outputs of other sizes than in the plan.
        """
        try:
            return self._pool.call({"outputs": names}, arrays, room)[1]
        except UserError:
            if not room or self.plan.replicas > 1:  # ranks write the batches into the room
                raise
        found = self._pool.call({"outputs": names}, arrays)[1]
        self._is_sized = False
        return found

    def step_times_s(self, runs: int) -> list[float]:
        """Return the times of ``runs`` steps on the ranks alone, in seconds.

        Each is the slowest rank's time. The inputs are the inputs of the last run.
        """
        message, _ = self._pool.call({"steps": runs})
        return list(message["times_s"])

    def empty(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
        """Return uninitialised input arrays of these shapes, by name, in shared memory.

        `run` reads them without a copy. Arrays of strings are not in shared memory.
        """
        check_names(str(self.plan.folder), shapes, self._inputs)
        wanted = {n: (dtype_of(self._inputs[n].dtype), tuple(s)) for n, s in shapes.items()}
        return self._pool.empty(wanted)

    def restart(self) -> None:
        """Replace the ranks by new ranks; current runs fail.

        Raises `UserError`, also for a plan that was replaced in its folder.
        """
        self._pool.restart()

    def check_open(self) -> None:
        """Raise `UserError` if the session is closed."""
        self._pool.check_open()

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the ranks after their requests or ``grace_s`` seconds. Idempotent."""
        self._pool.close(grace_s)

    def _check_inputs(
        self, inputs: Mapping[str, ArrayLike]
    ) -> tuple[dict[str, Array], dict[str, int]]:
        """Return inputs as arrays of the plan's types, and the sizes of symbolic dimensions."""
        where, dims = str(self.plan.folder), dict(self._dims)
        if not isinstance(inputs, Mapping):
            names = ", ".join(self._inputs)
            raise UserError(
                f"{where}: expected a dictionary of arrays by input name ({names}), "
                f"got: {type(inputs).__name__}"
            )
        match_names(where, inputs, self._inputs)
        arrays = {
            name: _as_plan_type(where, tensor, _array(where, tensor, inputs[name]))
            for name, tensor in self._inputs.items()
        }
        shapes = {name: array.shape for name, array in arrays.items()}
        match_shapes(where, shapes, self._inputs, dims)
        check_parts(shapes, self._inputs)
        return arrays, dims

    def _output_names(self, outputs: Collection[str] | None) -> list[str]:
        if outputs is None:
            return list(self._outputs)
        for name in outputs:
            if name not in self._outputs:
                raise UserError(
                    f"{self.plan.folder}: '{name}' is not an output of the plan"
                    f"{did_you_mean(name, self._outputs)}"
                )
        return list(outputs)


def _inference_plan(folder: Path | str) -> Plan:
    plan = Plan.load(folder)
    if "training" in plan.document:
        raise UserError(f"{folder}: is a plan for training, expected a plan for inference")
    partial = [tensor.name for tensor in plan.outputs if tensor.layout.is_partial]
    if partial:
        raise UserError(f"{folder}: output '{partial[0]}': expected R or S, got: a partial layout")
    return plan


def _array(where: str, tensor: Tensor, given: ArrayLike) -> Array:
    try:
        return as_array(given, dtype_of(tensor.dtype))
    except (TypeError, ValueError) as error:
        why = str(error).partition(".")[0]
        kind = type(given).__name__
        raise UserError(
            f"{where}: input '{tensor.name}': expected an array, got: {kind} ({why})"
        ) from None


def _as_plan_type(where: str, tensor: Tensor, array: Array) -> Array:
    """Return an array in the plan's dtype; the array's dtype may differ only in byte order."""
    if tensor.dtype == STRING and array.dtype.kind == "O":
        return array
    check_dtype(where, tensor, array.dtype.newbyteorder("="))
    return as_dtype(array, dtype_of(tensor.dtype))


def _sizes(tensor: Tensor, dims: Mapping[str, int]) -> Wanted | None:
    """Return the type and shape of an output, or None if it must be gathered after the run.

    Its shape may be unknown before, its elements may be strings, or the parts of ranks may have
    padding, for which the whole array has no room.
    """
    if tensor.layout.padded or tensor.dtype == STRING:
        return None
    shape: list[Any] = [bound(s, dims) if isinstance(s, str) else s for s in tensor.shape]
    if any(isinstance(size, str) for size in shape):
        return None
    return dtype_of(tensor.dtype), tuple(shape)
