"""Check of the free space in /dev/shm that MPI needs for the ranks of one machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tensoropt.runtime.launch.guardian import SHARED
from tensoropt.runtime.support.errors import UserError

__all__ = ["BYTES_PER_RANK", "LOOPBACK", "check_shared_memory", "local_ranks"]

BYTES_PER_RANK = 1 << 20 | 1 << 14
"""Bytes per local rank in MPICH's file; test/runtime/test_shared_memory.py checks the value."""

_COUNTS = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for itself."""


def check_shared_memory(ranks: int, folder: Path = SHARED) -> None:
    """Raise `UserError` if ``folder`` does not suit ``ranks`` ranks of this machine.

    It may be read-only or too small.

    MPICH maps its file without reserving space, so a rank dies by SIGBUS if it runs out.
    """
    try:
        facts = os.statvfs(folder)
    except OSError:
        return  # MPI itself reports a system without shared memory
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(
            f"{folder}: expected a folder in which MPI can create files for the memory of ranks, "
            f"got: {_fault(facts)}"
        )
    free, needed = facts.f_bavail * facts.f_frsize, ranks * BYTES_PER_RANK
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise UserError(
            f"the limit of a file's size (ulimit -f): expected at least {needed >> 10} KiB, "
            f"for the memory of {ranks} rank{'' if ranks == 1 else 's'} in {folder}, "
            f"got: {limit >> 10}"
        )
    if facts.f_blocks and free < needed:  # a tmpfs without a limit has no blocks
        raise UserError(
            f"{folder}: expected {needed >> 10} KiB of free room for {ranks} "
            f"rank{'' if ranks == 1 else 's'}, got: {free >> 10} KiB; remove files from it or "
            "enlarge it (docker run --shm-size 256m; Kubernetes: an emptyDir with medium Memory; "
            "a host: mount -o remount,size=256m)"
        )


def _fault(facts: os.statvfs_result) -> str:
    if facts.f_flag & os.ST_RDONLY:
        return (
            "a read-only file system; mount it writable (docker run --tmpfs /dev/shm; Kubernetes: "
            "an emptyDir with medium Memory; a host: mount -o remount,rw)"
        )
    return "no right to write (chmod 1777)"


def local_ranks() -> int:
    """Return the number of local ranks from the environment, 1 if it is not set."""
    counts = [os.environ.get(name, "") for name in _COUNTS]
    if os.environ.get("MASTER_ADDR") in LOOPBACK:
        counts.append(os.environ.get("WORLD_SIZE", ""))
    return next((int(count) for count in counts if count.isdecimal()), 1)
