"""Run on two ranks under mpiexec: what a wrong node says. Rank 0 prints name -> message as JSON.

With stand-ins for CUDA the nodes run over NCCL.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from handmade import DOMAIN, collective, model_of, value_info
from mpi4py import MPI
from onnx import helper

from tensoropt.runtime.device.cuda import open_cuda, stand_in
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.support.errors import UserError

RANK = MPI.COMM_WORLD.rank
PROVIDER = open_cuda(MPI.COMM_WORLD, share_gpus=False) if stand_in() else CPU
BOTH = [0, 1]


def message(op: str, x, **attributes) -> str:
    """Return the error of one node, run on ``x``, without the path of its file."""
    x = np.asarray(x)
    node = collective(op, "x", "y", 0, "the_node", **attributes)
    shape = [f"d{i}" for i in range(x.ndim)]
    info = [value_info(name, x.dtype.name, shape) for name in "xy"]
    return _error_of(model_of([node], info[:1], [value_info("y", x.dtype.name, None)]), x)


def rows_message(x, rows, group) -> str:
    """Return the error of rows that are sent, as `message` does."""
    ends = {"name": "the_node", "domain": DOMAIN, "group": group}
    node = helper.make_node("AllToAllRows", ["x", "rows", "t0"], ["y", "t1"], **ends)
    info = [value_info(name, "float32", None) for name in "xy"]
    return _error_of(model_of([node], info[:1], info[1:], {"rows": np.asarray(rows, np.int64)}), x)


def _error_of(model, x) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.onnx"
        onnx.save(model, path)
        try:
            session = rank_session(path, 1, provider=PROVIDER)
            session.feed("x", x)
            session.run()
        except UserError as error:
            return str(error).replace(f"{path}: ", "")
    return "no error"


def main() -> None:
    x = np.ones((3, 4), np.float32)
    found = {
        "absent": message("AllReduce", x, group=[0, 2], reduction="sum"),
        "twice": message("AllReduce", x, group=[0, 0], reduction="sum"),
        "other": message("AllReduce", x, group=[1 - RANK], reduction="sum"),
        "reduction": message("AllReduce", x, group=BOTH, reduction="mean"),
        "missing": message("AllGather", x, group=BOTH),
        "dim": message("AllGather", x, group=BOTH, dim=2),
        "divide": message("ReduceScatter", x, group=BOTH, reduction="sum", dim=0),
        "split": message("AllToAll", x, group=BOTH, split_dim=0, concat_dim=1),
        "type": message("AllReduce", x.astype(np.uint16), group=BOTH, reduction="sum"),
        "shape": message("AllReduce", np.ones(3 + RANK, np.float32), group=BOTH, reduction="sum"),
        "op": message("AllGather", x, group=BOTH, dim=RANK),
        "root": message("Broadcast", x, group=[RANK], root=1 - RANK),
        "roots": message("Broadcast", x, group=BOTH, root=RANK),
        "sources": message("CollectivePermute", x, group=BOTH, sources=[1, 1]),
        "permutes": message("CollectivePermute", x, group=BOTH, sources=[RANK, 1 - RANK]),
        "rows": rows_message(x, [[1, 1], [1, 1]], BOTH),
        "counts": rows_message(x, [[1, 1], [2, 2], [0, 0]], BOTH),
        "negative": rows_message(x, [[4, 1], [-1, 1]], BOTH),
        "widths": rows_message(np.ones((2, 4 + RANK), np.float32), [[1, 1], [1, 1]], BOTH),
        "scalar": rows_message(np.array(1, np.float32), [[1, 1], [1, 1]], BOTH),
        "right": message("AllGather", x, group=BOTH, dim=0),
    }
    MPI.COMM_WORLD.Barrier()
    if RANK == 0:
        json.dump(found, sys.stdout)


main()
