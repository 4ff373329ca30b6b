"""Run on two ranks under mpiexec: where a rank is, as another of its threads sees it.

Rank 0 prints a JSON object: what it says before, in, and after two collectives, and the peak of
arenas that no device kernel has seen.
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

from tensoropt.runtime.ops import library
from tensoropt.runtime.session.session import rank_session

COMM = MPI.COMM_WORLD
GROUP = {"group": [0, 1], "reduction": "sum"}


def session():
    nodes = [
        collective("AllReduce", "x", "h", 0, "first", **GROUP),
        collective("AllReduce", "h", "y", 1, "second", **GROUP),
    ]
    info = [value_info(name, "float32", [2]) for name in "xy"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.onnx"
        onnx.save(model_of(nodes, info[:1], info[1:]), path)
        made = rank_session(path, 1)
    made.feed("x", np.ones(2, np.float32))
    return made


def entered(wanted: str) -> str:
    """Wait until this rank is in ``wanted``; a test that waits for ever is one that fails."""
    while not (text := library.where()).startswith(wanted):
        time.sleep(0.001)
    return text


def main() -> None:
    made = session()
    before = library.where()
    if COMM.rank == 1:
        COMM.recv()  # rank 0 is in its first collective
        made.run()
        return
    seen: list[str] = []

    def watch() -> None:
        seen.append(entered("in "))
        COMM.send(None, 1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    made.run()
    watcher.join()
    found: dict[str, object] = {"before": before, "in": seen[0], "after": library.where()}
    found["moves"] = library.position().moves
    library.move("waiting for other stages")
    found["waits"] = library.position().where
    library.move()
    found["moved"] = library.position().moves
    json.dump(found | {"peak": library.arena_peak_bytes()}, sys.stdout)


main()
