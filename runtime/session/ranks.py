"""Collective operations of the ranks of a job, outside of their graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tensoropt.runtime.layout.mesh_layout import MeshLayout, assemble, gather_global
from tensoropt.runtime.session.session import cores
from tensoropt.runtime.support.dtypes import Array, dtype_of, name_of
from tensoropt.runtime.support.errors import UserError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "first_error",
    "gather",
    "gather_into",
    "largest",
    "make_on_all",
    "share_of_cores",
    "slowest_s",
    "timed_s",
    "wait_idle",
    "whole_shape",
]

T = TypeVar("T")


def share_of_cores(comm: MPI.Comm) -> int:
    """Return the number of cores of this machine per rank on it, at least one."""
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = here.size
    here.Free()
    return max(1, cores() // int(ranks))


def wait_idle(comm: MPI.Comm) -> None:
    """Wait for all ranks without keeping the cores busy, as MPI's own barrier would."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def first_error(comm: MPI.Comm, error: str | None) -> str | None:
    """Return the error of the first rank that has one, with the rank's number; None without errors.

    The result is the same on all ranks. Ranks that arrive early sleep.
    """
    wait_idle(comm)
    errors = (f"rank {rank}: {text}" for rank, text in enumerate(comm.allgather(error)) if text)
    return next(errors, None)


def make_on_all(comm: MPI.Comm, make: Callable[[], T]) -> tuple[T | None, str | None]:
    """Return the result of ``make`` and None, or None and the first rank's `UserError`.

    A collective: either all ranks get a result, or all get the error.
    """
    made, error = None, None
    try:
        made = make()
    except UserError as failure:
        error = str(failure)
    error = first_error(comm, error)
    return (made if error is None else None), error


def timed_s(run: Callable[[], object]) -> float:
    """Return the time of ``run``, in seconds."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def slowest_s(comm: MPI.Comm, run: Callable[[], object]) -> float:
    """Return the slowest rank's time of ``run``, in seconds; all ranks start together."""
    from mpi4py import MPI

    comm.Barrier()
    return float(comm.allreduce(timed_s(run), MPI.MAX))


def largest(comm: MPI.Comm, value: int | None) -> int | None:
    """Return the largest of the ranks' values, or None if all are None."""
    found = [item for item in comm.allgather(value) if item is not None]
    return max(found, default=None)


def gather(
    name: str, part: Array | None, layout: MeshLayout, comm: MPI.Comm, copy: int = 0, first: int = 0
) -> Array | None:
    """Return the whole output on rank 0, and the rank's own part on other ranks, None without one.

    For a replicated layout, ``copy`` selects the replica. The tensor is on the ranks of a mesh from
    rank ``first`` on. Besides the whole, rank 0 stores one part at a time. If its own part is the
    whole, it is returned without a copy.
    """
    sources = [first + source for source in layout.sources(copy)]
    if part is not None and part.dtype.hasobject:  # strings are pickled to be sent
        parts = comm.gather(part if comm.rank in sources else None)
        return part if parts is None else gather_global(dict(enumerate(parts)), layout, copy)
    facts = _facts(name, part, comm, sources)
    if facts is None:
        if comm.rank in sources:
            assert part is not None
            comm.Send(_bytes_of(np.ascontiguousarray(part)), 0)
        return part
    if part is not None and sources == [0]:
        return part
    pairs = _receive(part, facts, comm, sources)
    return assemble(((rank - first, own) for rank, own in pairs), layout)


def _receive(
    own: Array | None, facts: _Facts, comm: MPI.Comm, ranks: Sequence[int]
) -> Iterator[tuple[int, Array]]:
    """Yield each rank's part; the parts of other ranks are received into one array in turn."""
    shape, dtype = facts
    received = np.empty(shape, dtype_of(dtype))
    for rank in ranks:
        if rank:
            comm.Recv(_bytes_of(received), rank)
        yield rank, received if rank or own is None else own


def whole_shape(
    name: str, part: Array | None, layout: MeshLayout, comm: MPI.Comm, first: int = 0
) -> tuple[tuple[int, ...], str] | None:
    """Return the shape and the type of the whole output on rank 0, without gathering it.

    Raises as `gather` does.
    """
    facts = _facts(name, part, comm, [first + source for source in layout.sources()])
    return None if facts is None else (layout.global_shape(facts[0]), facts[1])


_Facts = tuple[tuple[int, ...], str]
"""The shape and the type of a rank's part."""


def _facts(name: str, part: Array | None, comm: MPI.Comm, sources: Sequence[int]) -> _Facts | None:
    """Return the facts of a part on rank 0; raises `UserError` if the ``sources`` differ."""
    facts = comm.gather(None if part is None else (part.shape, name_of(part.dtype)))
    if facts is None:
        return None
    found = {facts[rank] for rank in sources} | ({facts[0]} - {None})
    if len(found) > 1:
        raise UserError(f"output '{name}': the ranks gave parts of different shapes or types")
    (only,) = found
    return only  # type: ignore[no-any-return]


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def gather_into(
    whole: Array | None, part: Array | None, layout: MeshLayout, comm: MPI.Comm, first: int = 0
) -> None:
    """Gather a tensor into ``whole`` on rank 0, one rank's part at a time.

    ``whole`` is None on the other ranks. ``part`` is this rank's part, None if it has none. The
    tensor is on the ranks of a mesh from rank ``first`` on. The layout is not partial.
    """
    sources = [first + source for source in layout.sources()]
    if whole is None:
        if comm.rank in sources:
            assert part is not None
            comm.Send(_bytes_of(np.ascontiguousarray(part)), 0)
        return
    received = np.empty(layout.local_shape(whole.shape), whole.dtype) if any(sources) else None
    for rank in sources:
        if rank:
            assert received is not None
            comm.Recv(_bytes_of(received), rank)
        own = received if rank else part
        assert own is not None
        layout.put(whole, own, rank - first)
