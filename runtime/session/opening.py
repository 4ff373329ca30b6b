"""Opening of a rank's session for a job, collectively on all ranks."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.plan.plan import Plan, Tensor
from tensoropt.runtime.session.common_memory import host_blocks, share_blocks
from tensoropt.runtime.session.ranks import make_on_all, share_of_cores
from tensoropt.runtime.session.session import Change, RankSession, rank_session
from tensoropt.runtime.session.staged import StagedSession
from tensoropt.runtime.session.weights import common_weights
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.job import Launched

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["keep_outputs", "open_session"]


def open_session(
    job: Launched,
    plan: Plan,
    comm: MPI.Comm,
    provider: Provider,
    other: Plan | None = None,
    change: Change | None = None,
) -> tuple[RankSession | None, str | None, str | None]:
    """Return the rank's session, the reason why requested CUDA graphs are missing, and an error.

    On the CPU, weights that also belong to the plan ``other``, which has an open session, are
    stored once. Weights that ONNX Runtime packs are shared by the ranks of one machine. If one rank
    cannot capture CUDA graphs, no rank does, because with them the first run is three runs.
    ``change`` changes the graph beforehand.
    """
    threads = job.threads or share_of_cores(comm)
    graph, refusal = plan.inference_graph(comm.rank), None
    weights = {}
    if other is not None and provider.name == "cpu":
        weights = common_weights(graph, other.graph(comm.rank))
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
            change=change,
            kind=None if plan.staged is None else StagedSession,
        )
        session, error = make_on_all(comm, make)
        if error is None:
            if isinstance(session, StagedSession):
                session.join(plan, comm, provider)
            if provider.name == "cpu":
                share_blocks(comm, host_blocks() - before)
            return session, refusal, None
        refusal = f"not captured: {error}"
    return None, refusal, error


def keep_outputs(
    session: RankSession, plan: Plan, provider: Provider, exclude: Collection[str] = ()
) -> dict[str, Array]:
    """Bind outputs of known sizes to fixed arrays, on the CPU; return the arrays by name.

    In the arena they would fragment the memory of the next run. Outputs in ``exclude``, and inputs
    that are returned unchanged, are not bound. With symbolic input sizes no output is bound: its
    declared size may be valid only for the inputs with which the model was traced.
    """
    kept: dict[str, Array] = {}
    if provider.name != "cpu" or not all(_is_fixed(tensor) for tensor in plan.inputs):
        return kept
    for tensor in plan.outputs:
        dtype = dtype_of(tensor.dtype)
        if tensor.name in session.inputs or tensor.name in exclude:
            continue
        if tensor.name not in session.outputs:  # another stage has it
            continue
        if not dtype.hasobject and _is_fixed(tensor):
            array = provider.empty(tensor.local_shape(), dtype)
            session.write(tensor.name, array)
            kept[tensor.name] = array.get()
    return kept


def _is_fixed(tensor: Tensor) -> bool:
    return all(isinstance(size, int) for size in tensor.shape)
