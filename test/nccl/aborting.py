"""Run on two ranks under mpiexec, of which one hangs in its second collective; then both abort.

Rank 0 prints a JSON list with what each rank's runs ended in, and what each was doing meanwhile.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnx
from handmade import collective, model_of, value_info
from mpi4py import MPI

from tensoropt.runtime.device.cuda import open_cuda
from tensoropt.runtime.ops import library
from tensoropt.runtime.session.session import RankSession, rank_session
from tensoropt.runtime.support.errors import UserError

COMM = MPI.COMM_WORLD


def opened() -> RankSession:
    info = [value_info(name, "float32", [2]) for name in "xy"]
    node = collective("AllReduce", "x", "y", 0, "total", group=[0, 1], reduction="sum")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.onnx"
        onnx.save(model_of([node], info[:1], info[1:]), path)
        session = rank_session(path, 1, provider=open_cuda(COMM, share_gpus=False))
    session.feed("x", np.ones(2, np.float32))
    return session


def ended(session: RankSession) -> str:
    try:
        session.run()
    except UserError as error:
        return str(error)
    return "no error"


def main() -> None:
    session, meanwhile = opened(), []

    def abort() -> None:
        time.sleep(0.5)
        meanwhile.append(library.where())
        library.abort()

    first = ended(session)
    thread = threading.Thread(target=abort)
    thread.start()
    found = [first, ended(session), ended(session)]
    thread.join()
    facts = COMM.gather((found, meanwhile[0]))
    if COMM.rank == 0:
        json.dump(facts, sys.stdout)


main()
