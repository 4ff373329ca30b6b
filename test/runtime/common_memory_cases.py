"""Blocks of memory that two ranks filled alike or not, and what the system says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tensoropt.runtime.device.host_memory import exact_blocks
from tensoropt.runtime.session.common_memory import host_blocks, share_blocks

COUNT, HALF = 1 << 19, 1 << 18  # of float64: 4 MiB


def sizes(array: np.ndarray) -> tuple[int, int]:
    """Return Rss and Pss of the mapping that the middle of an array lies in, in KiB."""
    middle, found, inside = array.ctypes.data + array.nbytes // 2, {}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, _, rest = line.partition(":")
        if " " in key:
            start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            inside = start <= middle < end
        elif inside:
            found[key] = rest
    return int(found["Rss"].split()[0]), int(found["Pss"].split()[0])


def main() -> None:
    comm = MPI.COMM_WORLD
    before = host_blocks()
    names = ["same", "own", "later", "untold"]
    with exact_blocks():  # no order of addresses may be needed
        names_in_order = reversed(names) if comm.rank else names
        arrays = {name: np.arange(COUNT, dtype=np.float64) for name in names_in_order}
    arrays["later"][:HALF] -= 1  # blocks with the same beginning are paired by their addresses
    arrays["own"] += comm.rank + 1
    arrays["later"][HALF:] += comm.rank + 1  # what is looked at first is the same
    told = [arrays[name].ctypes.data for name in ("same", "own", "later")]
    made = {
        block
        for block in host_blocks() - before
        if any(block.address <= address < block.address + block.size for address in told)
    }
    share_blocks(comm, made)
    sums = {name: float(array.sum()) for name, array in arrays.items()}  # all pages are there
    comm.Barrier()
    kept = {name: sizes(array) for name, array in arrays.items()}
    comm.Barrier()
    if comm.rank == 1:
        arrays["same"][HALF] = -1.0
    comm.Barrier()
    mine = {"blocks": len(made), "sums": sums, "kept": kept, "at": float(arrays["same"][HALF])}
    del arrays
    comm.Barrier()
    again = np.zeros(COUNT)  # where an array was
    mine["again"] = float(again.sum())
    every = comm.gather(mine)
    if every is not None:
        print(json.dumps(every))


if __name__ == "__main__":
    main()
