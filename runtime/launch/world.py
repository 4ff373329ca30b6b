"""The communicator of all ranks of a job, under any launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensoropt.runtime.launch.shared_memory import check_shared_memory, local_ranks
from tensoropt.runtime.ops import library

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["world"]


def world(job: str = "") -> MPI.Comm:
    """Return the communicator of all ranks, starting it if necessary.

    ``job`` is the identity that all ranks must share, see `library.start`. Raises `UserError`.
    """
    check_shared_memory(local_ranks())
    library.start(job)
    from mpi4py import MPI  # MPI is already initialised; the library finalises it

    return MPI.COMM_WORLD
