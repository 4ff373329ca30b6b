"""Run a plan in processes of your own: stock ONNX Runtime, one rank each, under any launcher.

    mpiexec -n 2 python examples/own_process.py plan/ inputs.npz outputs.npz

Each rank loads its graph and feeds it its slices of the inputs; rank 0 puts the outputs together.
In a program that already has its slices, the three lines that make the session are all it takes.
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime

from tensoropt.runtime.launch.world import world
from tensoropt.runtime.layout.mesh_layout import gather_global
from tensoropt.runtime.ops import library_path
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError


def main(folder: str, inputs_path: str, outputs_path: str) -> None:
    """Run one step on this rank."""
    comm = world()
    plan = Plan.load(folder)
    if comm.size != plan.ranks:
        sys.exit(f"error: {folder}: expected {plan.ranks} ranks, got: {comm.size}")

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library_path()))
    session = onnxruntime.InferenceSession(plan.graph(comm.rank), options)

    inputs = np.load(inputs_path)
    feeds = {t.name: t.layout.local_slice(inputs[t.name], comm.rank) for t in plan.inputs}
    parts = session.run([t.name for t in plan.outputs], feeds)

    whole = {}
    for tensor, part in zip(plan.outputs, parts, strict=True):
        held = comm.gather(part)
        if comm.rank == 0:
            whole[tensor.name] = gather_global(dict(enumerate(held)), tensor.layout)
    if comm.rank == 0:
        np.savez(outputs_path, **whole)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"error: expected PLAN INPUTS.npz OUTPUTS.npz, got: {len(sys.argv) - 1} arguments")
    try:
        main(*sys.argv[1:])
    except (UserError, OSError, KeyError) as error:
        sys.exit(f"error: {error}")
