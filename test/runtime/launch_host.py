"""A program that knows ONNX Runtime and no MPI: ``launch_host.py LIBRARY GRAPH [WHAT]``.

It makes a session of a graph with a collective, whose library brings the ranks together, runs it
twice and prints the sum. WHAT happens then: ``status`` (rank 1 exits with status 3), ``killed`` and
``first-killed`` (rank 1 or rank 0 is, by a signal, when the others wait for it).
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import onnxruntime

LIBRARY, GRAPH, *WHAT = sys.argv[1:]
RANK = os.environ.get("RANK", os.environ.get("PMI_RANK", "0"))

options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
options.register_custom_ops_library(LIBRARY)
session = onnxruntime.InferenceSession(GRAPH, options, providers=["CPUExecutionProvider"])
x = np.full(2, int(RANK) + 1, np.float32)
y = [session.run(None, {"x": x})[0] for _ in range(2)][1]
# In one piece, also where Python does not buffer: mpiexec mixes what its ranks write.
sys.stdout.write(f"{int(y[0])}\n")
sys.stdout.flush()
assert "mpi4py" not in sys.modules
if (RANK, WHAT) in (("1", ["killed"]), ("0", ["first-killed"])):
    os.kill(os.getpid(), signal.SIGKILL)
if (RANK, WHAT) == ("1", ["status"]):
    sys.exit(3)
if WHAT:
    session.run(None, {"x": x})
