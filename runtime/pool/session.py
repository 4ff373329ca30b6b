"""`Session`: a plan's ranks, started once, run on whole arrays of the process that started them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensoropt.runtime.plan.dims import bound
from tensoropt.runtime.plan.plan import Plan, Tensor, given_dims
from tensoropt.runtime.pool.blocks import Wanted
from tensoropt.runtime.pool.pool import GRACE_S, Pool, start
from tensoropt.runtime.session.inputs import (
    as_dtype,
    check_cuts,
    check_dtype,
    check_names,
    match_names,
    match_shapes,
)
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.dtypes import STRING, Array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean

__all__ = ["Session"]


class Session(Closing):
    """The ranks of the plan in a folder, ready to run; a context that ends them.

    ``threads`` are those of each rank: None divides the machine's cores. ``dims`` sets symbolic
    dimensions for all runs; others may differ from run to run. ``provider`` is "cpu" or "cuda",
    where ``share_gpus`` allows more ranks than GPUs and ``cuda_graphs`` asks for CUDA graphs, with
    which all runs have the sizes of the first.
    ``custom_ops`` are libraries of operators. Each run fails after ``timeout_s``, and starting the
    ranks after ``ready_s``, which is ``timeout_s`` where it is None.

    Any thread may call it: runs queue. Raises `UserError` where the plan cannot be run.
    """

    def __init__(
        self,
        plan: Path | str,
        *,
        provider: str = "cpu",
        threads: int | None = None,
        dims: Mapping[str, int] | None = None,
        share_gpus: bool = False,
        cuda_graphs: bool = False,
        custom_ops: Sequence[str] = (),
        timeout_s: float | None = None,
        ready_s: float | None = None,
    ) -> None:
        self.plan = _inference_plan(plan)
        self._dims, self._has_graphs = given_dims(dims, self.plan), cuda_graphs
        self._is_sized = True
        self._inputs = {tensor.name: tensor for tensor in self.plan.inputs}
        self._outputs = {tensor.name: tensor for tensor in self.plan.outputs}
        self._pool: Pool = start(
            self.plan,
            "inference",
            threads=threads,
            provider=provider,
            share_gpus=share_gpus,
            cuda_graphs=cuda_graphs,
            custom_ops=tuple(map(str, custom_ops)),
            timeout_s=timeout_s,
            ready_s=ready_s,
        )

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The plan's inputs: each has a name, a dtype, and a shape of sizes and names of sizes."""
        return self.plan.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The plan's outputs, as `inputs`."""
        return self.plan.outputs

    @property
    def is_alive(self) -> bool:
        """Whether all ranks are there, so that a run can be tried."""
        return self._pool.is_alive

    @property
    def silent_s(self) -> float:
        """For how many seconds a run has been without an answer; 0 where there is none."""
        return self._pool.silent_s

    @property
    def cuda_graphs(self) -> str | None:
        """Whether CUDA graphs are there: "captured" or why not, None where not asked for."""
        message, _ = self._pool.call({"facts": True})
        found: str | None = message["cuda_graphs"]
        return found

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the ranks, by rank; none where they ended."""
        return self._pool.pids

    def run(
        self, inputs: Mapping[str, ArrayLike], outputs: Collection[str] | None = None
    ) -> dict[str, Array]:
        """Run once on whole arrays, by input name; returns whole outputs, or those in ``outputs``.

        The arrays that come back are the caller's. Those that go in may be used again at once; ones
        that `empty` made, or that came out, are read where they lie.

        Raises `UserError` where inputs do not fit, before any rank hears of them, or where all
        ranks refuse them; and `RankFailedError` where a rank ended, after which none is left.
        """
        arrays, dims = self._checked(inputs)
        names = self._wanted(outputs)
        if self._has_graphs:  # what was captured goes on as it was: the same sizes, all outputs
            self._dims = dims
        asked = list(self._outputs) if self._has_graphs else names
        room = {name: sizes for name in asked if (sizes := _sizes(self._outputs[name], dims))}
        found = self._run(asked, arrays, room if self._is_sized else {})
        return {name: found[name] for name in names}

    def _run(
        self, names: list[str], arrays: Mapping[str, Array], room: Mapping[str, Wanted]
    ) -> Mapping[str, Array]:
        """Run once; where that fails, once more without counting on the sizes of outputs.

        A model that draws numbers may give an output of other sizes than the plan says.
        """
        try:
            return self._pool.call({"outputs": names}, arrays, room)[1]
        except UserError:
            if not room:
                raise
        found = self._pool.call({"outputs": names}, arrays)[1]
        self._is_sized = False
        return found

    def step_times_s(self, runs: int) -> list[float]:
        """Return what steps take on the ranks alone, in seconds: the slowest rank's time of each.

        The inputs are those of the last run.
        """
        message, _ = self._pool.call({"steps": runs})
        return list(message["times_s"])

    def empty(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
        """Return arrays for inputs, by name and shape, in memory that the ranks share.

        Values are not set. Filled and given to `run` they are not copied once more. Strings have no
        place in shared memory: their arrays are plain ones.
        """
        check_names(str(self.plan.folder), shapes, self._inputs)
        wanted = {n: (dtype_of(self._inputs[n].dtype), tuple(s)) for n, s in shapes.items()}
        return self._pool.empty(wanted)

    def restart(self) -> None:
        """Start new ranks; runs of the old ones fail.

        Raises `UserError`, also for a plan that was replaced in its folder.
        """
        self._pool.restart()

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the ranks, after what they are at or in ``grace_s`` seconds; again is no error."""
        self._pool.close(grace_s)

    def _checked(self, inputs: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], dict[str, int]]:
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
            name: _typed(where, tensor, _array(where, name, inputs[name]))
            for name, tensor in self._inputs.items()
        }
        shapes = {name: array.shape for name, array in arrays.items()}
        match_shapes(where, shapes, self._inputs, dims)
        check_cuts(shapes, self._inputs)
        return arrays, dims

    def _wanted(self, outputs: Collection[str] | None) -> list[str]:
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
        raise UserError(f"{folder}: is a plan for training, expected one for inference")
    partial = [tensor.name for tensor in plan.outputs if tensor.layout.is_partial]
    if partial:
        raise UserError(f"{folder}: output '{partial[0]}': expected R or S, got: a partial layout")
    return plan


def _array(where: str, name: str, given: ArrayLike) -> Array:
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        why = str(error).partition(".")[0]
        kind = type(given).__name__
        raise UserError(
            f"{where}: input '{name}': expected an array, got: {kind} ({why})"
        ) from None


def _typed(where: str, tensor: Tensor, array: Array) -> Array:
    """Return an array as the plan has the type; only the order of bytes may be another one."""
    if tensor.dtype == STRING and array.dtype.kind == "O":
        return array
    check_dtype(where, tensor, array.dtype.newbyteorder("="))
    return as_dtype(array, dtype_of(tensor.dtype))


def _sizes(tensor: Tensor, dims: Mapping[str, int]) -> Wanted | None:
    """Return the type and shape of an output, None where only a run tells, and where ranks have
    padding behind their parts, which the whole has no room for."""
    if tensor.layout.padded or tensor.dtype == STRING:
        return None
    shape: list[Any] = [bound(s, dims) if isinstance(s, str) else s for s in tensor.shape]
    if any(isinstance(size, str) for size in shape):
        return None
    return dtype_of(tensor.dtype), tuple(shape)
