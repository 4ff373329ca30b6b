"""All ranks of a job, under any launcher."""

from __future__ import annotations

from typing import Any

from tensoropt.runtime.ops import library

__all__ = ["world"]


def world() -> Any:
    """Return the communicator of all ranks, brought up where it is not. Raises `UserError`."""
    library.start()
    from mpi4py import MPI  # finds MPI up and leaves its end to the library

    return MPI.COMM_WORLD
