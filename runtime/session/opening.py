"""A rank's session as a job asks for it, made by all ranks together."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.plan.plan import Plan, Tensor
from tensoropt.runtime.session.common_memory import host_blocks, share_blocks
from tensoropt.runtime.session.ranks import made_on_all, share_of_cores
from tensoropt.runtime.session.session import RankSession, rank_session
from tensoropt.runtime.session.weights import common_weights
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.job import Launched

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["keep_outputs", "opened_session"]


def opened_session(
    job: Launched, plan: Plan, comm: MPI.Comm, provider: Provider, beside: Plan | None = None
) -> tuple[RankSession | None, str | None, str | None]:
    """Return the rank's session, why it has no CUDA graphs that were asked for, and an error.

    Weights that are the same as those of a plan ``beside`` it, whose session is there already, are
    held once, on the CPU; so is what ONNX Runtime makes of weights, alike on ranks of one machine.
    All ranks go without CUDA graphs where one has to: with them the first run is three.
    """
    threads = job.threads or share_of_cores(comm)
    graph, refusal = plan.graph(comm.rank), None
    weights = {}
    if beside is not None and provider.name == "cpu":
        weights = common_weights(graph, beside.graph(comm.rank))
    before = host_blocks()
    for graphs in (True, False) if job.cuda_graphs else (False,):
        make = partial(
            rank_session,
            graph,
            threads,
            provider=provider,
            graphs=graphs,
            transient_bytes=plan.transient_bytes,
            weights=weights,
        )
        session, error = made_on_all(comm, make)
        if error is None:
            if provider.name == "cpu":
                share_blocks(comm, host_blocks() - before)
            return session, refusal, None
        refusal = f"not captured: {error}"
    return None, refusal, error


def keep_outputs(
    session: RankSession, plan: Plan, provider: Provider, but: Collection[str] = ()
) -> dict[str, Array]:
    """Have outputs of known sizes written to arrays that stay, on the CPU; return those by name.

    In the arena they would lie between the tensors of the next run. The outputs in ``but`` are left
    out, and an input that is given back is not written anywhere. Where inputs have open sizes, what
    a model declares of its outputs may hold for those alone that it was traced with.
    """
    kept: dict[str, Array] = {}
    if provider.name != "cpu" or not all(_is_fixed(tensor) for tensor in plan.inputs):
        return kept
    for tensor in plan.outputs:
        dtype = dtype_of(tensor.dtype)
        if tensor.name in session.inputs or tensor.name in but:
            continue
        if not dtype.hasobject and _is_fixed(tensor):
            array = provider.empty(tensor.local_shape(), dtype)
            session.write(tensor.name, array)
            kept[tensor.name] = array.get()
    return kept


def _is_fixed(tensor: Tensor) -> bool:
    return all(isinstance(size, int) for size in tensor.shape)
