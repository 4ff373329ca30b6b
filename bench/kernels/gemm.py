"""Products of matrices by our kernel, next to ONNX Runtime's and PyTorch's.

    python bench/kernels/gemm.py                 one thread
    python bench/kernels/gemm.py --threads 2

All three take turns. A time is the mean of the fastest quarter of the turns; the others' times are
divided by ours: above 1 we are faster. The last row has the sums. `taken` marks products for which
training sessions take our kernel.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper

from tensoropt.runtime.ops import library_path
from tensoropt.runtime.session.gemm import use_own_gemms
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.tables import columns

_SIZES = (
    (512, 128, 128),
    (256, 128, 512),
    (256, 256, 1024),
    (1024, 256, 256),
    (512, 256, 256),
    (512, 256, 1024),
    (512, 1024, 256),
    (1024, 256, 1024),
    (1024, 1024, 256),
    (512, 256, 2048),
    (2048, 256, 1024),
    (1024, 256, 4096),
    (1024, 4096, 256),
    (256, 1024, 4096),
)
"""Rows, depths and columns."""
_FORMS = {"a b": (0, 0), "a b'": (0, 1), "a' b": (1, 0)}
_TURNS, _WARM_UP = 32, 3

Run = Callable[[], None]


def product(sizes: Sequence[int], flags: Sequence[int], domain: str) -> onnx.ModelProto:
    """Return the model of one product."""
    rows, depth, width = sizes
    shapes = [[depth, rows] if flags[0] else [rows, depth]]
    shapes.append([width, depth] if flags[1] else [depth, width])
    node = helper.make_node(
        "Gemm", ["a", "b"], ["y"], domain=domain, transA=flags[0], transB=flags[1]
    )
    value = helper.make_tensor_value_info
    inputs = [
        value(name, TensorProto.FLOAT, shape) for name, shape in zip("ab", shapes, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT, [rows, width])])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run_in_session(model: onnx.ModelProto, a: np.ndarray, b: np.ndarray, threads: int) -> Run:
    """Return the run of a model, with the memory of its ends bound."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(library_path()))
    kinds = ["CPUExecutionProvider"]
    session = ort.InferenceSession(model.SerializeToString(), options, providers=kinds)
    binding = session.io_binding()
    shape = [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]
    y = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
    binding.bind_cpu_input("a", a)
    binding.bind_cpu_input("b", b)
    binding.bind_ortvalue_output("y", y)

    def run() -> None:
        session.run_with_iobinding(binding)

    return run


def run_in_torch(a: np.ndarray, b: np.ndarray, flags: Sequence[int]) -> Run:
    """Return the product of PyTorch."""
    sides = [torch.from_numpy(side) for side in (a, b)]
    left, right = (side.T if flag else side for side, flag in zip(sides, flags, strict=True))
    y = torch.empty(left.shape[0], right.shape[1])

    def run() -> None:
        torch.mm(left, right, out=y)

    return run


def fastest_s(runs: Sequence[Run], threads: int) -> list[float]:
    """Return the seconds of the fastest quarter of the turns of each."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    turns_s: list[list[float]] = [[] for _ in runs]
    for turn in range(_WARM_UP + _TURNS):
        for run, times_s in zip(runs, turns_s, strict=True):
            begin_s = clock()
            run()
            if turn >= _WARM_UP:
                times_s.append(clock() - begin_s)
    return [statistics.fmean(sorted(times_s)[: _TURNS // 4]) for times_s in turns_s]


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse().threads
    torch.set_num_threads(threads)
    rng, total_s = np.random.default_rng(0), np.zeros(3)
    rows = [["rows, depth, columns", "form", "ours", "ONNX Runtime", "PyTorch", "taken"]]
    for sizes, (form, flags) in itertools.product(_SIZES, _FORMS.items()):
        models = [product(sizes, flags, domain) for domain in ("tensoropt", "")]
        shapes = [
            [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in models[0].graph.input
        ]
        a, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
        runs = [run_in_session(model, a, b, threads) for model in models]
        times_s = fastest_s([*runs, run_in_torch(a, b, flags)], threads)
        total_s += times_s
        taken = "yes" if use_own_gemms(models[1], models[1]) else ""
        rows.append([" x ".join(map(str, sizes)), form, *_cells(times_s), taken])
    rows.append(["all", "", *_cells(total_s), ""])
    print("\n".join(columns(rows)))


def _cells(times_s: Sequence[float]) -> list[str]:
    return [f"{1e3 * times_s[0]:.2f} ms", *(f"{time_s / times_s[0]:.2f}" for time_s in times_s[1:])]


if __name__ == "__main__":
    sys.exit(run_command(main))
