"""Run on every rank under mpiexec: many programs of collectives, one after another, over NCCL.

A program is a list of collectives, each with the groups that the ranks fall into; every rank runs
those of its own groups on one tensor. Argument: a JSON file with the programs. Rank 0 prints a JSON
list of which results differ from numpy's, of any rank.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from collective_oracle import data, oracle
from handmade import collective, model_of, value_info
from mpi4py import MPI

from tensoropt.runtime.device.cuda import open_cuda
from tensoropt.runtime.session.session import rank_session

COMM = MPI.COMM_WORLD
PROVIDER = open_cuda(COMM, share_gpus=False)


def simulated(program: dict) -> list[np.ndarray]:
    """What every rank has in the end."""
    held = [data(program["dtype"], rank, tuple(program["shape"])) for rank in range(COMM.size)]
    for step in program["steps"]:
        for group in step["groups"]:
            parts = [held[rank] for rank in group]
            attributes = {**step["attributes"], "group": group}
            for place, rank in enumerate(group):
                held[rank] = oracle(step["op"], attributes, parts, place)
    return held


def graph(program: dict) -> onnx.ModelProto:
    nodes, name = [], "x"
    for step in program["steps"]:
        for group in (g for g in step["groups"] if COMM.rank in g):
            number = len(nodes)
            ends = name, f"y{number}", number
            nodes.append(collective(step["op"], *ends, group=group, **step["attributes"]))
            name = f"y{number}"
    if not nodes:
        nodes.append(onnx.helper.make_node("Identity", ["x"], [name := "y0"]))
    x = value_info("x", program["dtype"], program["shape"])
    return model_of(nodes, [x], [value_info(name, program["dtype"], None)])


def differs(program: dict) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.onnx"
        onnx.save(graph(program), path)
        session = rank_session(path, 1, provider=PROVIDER)
    session.feed("x", data(program["dtype"], COMM.rank, tuple(program["shape"])))
    session.run()
    (got,) = session.fetch().values()
    expected = simulated(program)[COMM.rank]
    return (
        got.shape != expected.shape or got.dtype != expected.dtype or bool((got != expected).any())
    )


def main() -> None:
    programs = json.loads(Path(sys.argv[1]).read_text())
    wrong = [f"rank {COMM.rank}: {program}" for program in programs if differs(program)]
    found = COMM.gather(wrong)
    if COMM.rank == 0:
        json.dump([line for lines in found for line in lines], sys.stdout)


main()
