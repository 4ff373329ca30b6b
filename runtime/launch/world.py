"""All ranks of a job, under any launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensoropt.runtime.launch.shared_memory import check_shared_memory, local_ranks
from tensoropt.runtime.ops import library

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["world"]


def world(job: str = "") -> MPI.Comm:
    """Return the communicator of all ranks, brought up where it is not.

    ``job`` is what they must have in common, see `library.start`. Raises `UserError`.
    """
    check_shared_memory(local_ranks())
    library.start(job)
    from mpi4py import MPI  # finds MPI up and leaves its end to the library

    return MPI.COMM_WORLD
