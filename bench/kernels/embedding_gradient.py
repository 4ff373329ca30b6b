"""Accuracy and cost of summing the rows of an embedding's gradient on the CPU.

`python bench/kernels/embedding_gradient.py [--tokens N] [--rows V] [--width H]` prints, for 1, 2
and 4 threads, the time and the largest error of ScatterND and of ScatterElements with reduction
"add", on zeros that are computed in each run. It also prints the memory of a session with zeros
that follow from constants.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from tensoropt.runtime.support.flags import Parser, run_command

_REPEATS = 5
_PAGE_BYTES = 4096


def graph(form: str, rows: int, tokens: int, width: int, *, constant: bool = False) -> bytes:
    """Return a model (ids, updates) -> (sums per row); ``form`` is the operator that adds."""
    nodes = [
        _ints("shape", [rows, width]),
        _ints("none", 0),
        helper.make_node("Mul", ["ids", "none"], ["nothing"]),
        helper.make_node("Cast", ["nothing"], ["wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["wide"], ["made"], keepdims=0),
        helper.make_node("Constant", [], ["held"], value_float=0.0),
        helper.make_node("Expand", ["held" if constant else "made", "shape"], ["zeros"]),
    ]
    if form == "ScatterElements":
        nodes.append(_ints("all", [tokens, width]))
        nodes.append(helper.make_node("Expand", ["ids", "all"], ["places"]))
    places = "places" if form == "ScatterElements" else "ids"
    nodes.append(helper.make_node(form, ["zeros", places, "updates"], ["y"], reduction="add"))
    value = helper.make_tensor_value_info
    inputs = [value("ids", onnx.TensorProto.INT64, [tokens, 1]),
              value("updates", onnx.TensorProto.FLOAT, [tokens, width])]  # fmt: skip
    outputs = [value("y", onnx.TensorProto.FLOAT, [rows, width])]
    made = helper.make_graph(nodes, form, inputs, outputs)
    imports = [helper.make_opsetid("", 20)]
    model: bytes = helper.make_model(made, opset_imports=imports, ir_version=10).SerializeToString()
    return model


def _ints(name: str, values: Any) -> onnx.NodeProto:
    held = onnx.numpy_helper.from_array(np.array(values, np.int64), name)
    return helper.make_node("Constant", [], [name], value=held)


def session_of(model: bytes, threads: int) -> ort.InferenceSession:
    """Return a session on the CPU."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def measure(session: ort.InferenceSession, feeds: dict[str, Any]) -> tuple[float, float]:
    """Return the least milliseconds of a run, and the largest error of any run."""
    wanted = np.zeros(session.get_outputs()[0].shape)
    np.add.at(wanted, feeds["ids"][:, 0], feeds["updates"])
    times, errors = [], []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        (found,) = session.run(None, feeds)
        times.append(time.perf_counter() - start)
        errors.append(float(np.abs(found - wanted).max()))
    return min(times) * 1e3, max(errors)


def resident_mb() -> float:
    """Return the resident memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def main() -> None:
    """Print the table."""
    parser = Parser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=50257)
    parser.add_argument("--width", type=int, default=768)
    held = parser.parse()
    sizes = held.rows, held.tokens, held.width
    rng = np.random.default_rng(0)
    feeds = {
        "ids": rng.zipf(1.3, (held.tokens, 1)) % held.rows,  # word frequencies of a text
        "updates": rng.standard_normal((held.tokens, held.width)).astype(np.float32),
    }
    for constant in (False, True):
        before = resident_mb()
        session = session_of(graph("ScatterElements", *sizes, constant=constant), 1)
        name = "from constants" if constant else "computed"
        print(f"zeros {name}: the session takes {resident_mb() - before:.0f} MB")
        del session
    for threads in (1, 2, 4):
        for form in ("ScatterND", "ScatterElements"):
            took, error = measure(session_of(graph(form, *sizes), threads), feeds)
            print(f"{threads} threads, {form}: {took:.1f} ms, largest error {error:.2g}")


if __name__ == "__main__":
    sys.exit(run_command(main))
