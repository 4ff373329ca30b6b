"""Run on every rank under mpiexec: a step of a decoder's plan, whose caches it updates in place.

Rank 0 prints, of all ranks, which caches a run can update, whether their memory was where it had
been after two runs, and what it had then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.inference.work import _feed
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.caches import shared_caches
from tensoropt.runtime.session.inputs import make_inputs
from tensoropt.runtime.session.opening import open_session
from tensoropt.runtime.support.job import Job

COMM = MPI.COMM_WORLD


def main() -> None:
    folder, dims = sys.argv[1], json.loads(sys.argv[2])
    plan, job = Plan.load(folder), Job((folder,), dims=dims, int_range=(1, 2), threads=1)
    session, _, error = open_session(job, plan, COMM, CPU)
    assert session is not None, error
    inputs = make_inputs(job, plan.inputs)
    caches = shared_caches(plan, session, inputs.shapes)
    _feed(session, inputs, caches, CPU, COMM.rank)
    found = {}
    for _ in range(2):
        session.run()
    made = session.values([cache.present.name for cache in caches])
    for cache in caches:
        name = cache.present.name
        array = session._kept["input", cache.past.name]
        before = inputs.part(cache.past.name, COMM.rank)
        tokens = np.any(array.get()[..., : before.shape[2], :] != before, axis=(0, 1, 3))
        found[name] = {
            "stays": made[name].data_ptr() == array.address,
            "shape": list(array.shape),
            "changed": np.flatnonzero(tokens).tolist(),
            "last": bool(np.any(array.get()[:, :, -1])),
        }
    every = COMM.gather(found)
    if COMM.rank == 0:
        json.dump({"plan": Path(folder).name, "ranks": every}, sys.stdout)


main()
