"""A rank's place among all ranks, and among those of its machine."""

from __future__ import annotations

import os
from typing import Any

from tensoropt.runtime.ops import library

__all__ = ["local_rank", "local_ranks", "world"]

_LOCAL = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def world() -> Any:
    """Return the communicator of all ranks, brought up under any launcher.

    Raises `UserError`.
    """
    library.start()
    from mpi4py import MPI  # finds MPI up and leaves its end to the library

    return MPI.COMM_WORLD


def local_rank(comm: Any) -> int:
    """Return this rank's number among the ranks of ``comm`` on its machine; all ranks call this.

    The launcher's number where it numbers the machine's ranks from 0 on, since it may have handed
    out devices by it; else by the order of ranks.
    """
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    numbers = here.allgather(_launchers_number())
    rank = int(here.rank)
    here.Free()
    return int(numbers[rank]) if sorted(numbers) == list(range(len(numbers))) else rank


def local_ranks(comm: Any) -> int:
    """Return how many ranks of ``comm`` this machine has; all ranks call this."""
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = int(here.size)
    here.Free()
    return ranks


def _launchers_number() -> int:
    """Return what the launcher calls this rank on its machine, -1 where it says nothing."""
    found = (os.environ.get(name, "") for name in _LOCAL)
    return next((int(text) for text in found if text.isdecimal()), -1)
