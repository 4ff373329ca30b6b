"""Parts of a training step in two forms: time on the CPU, with one thread.

    python bench/kernels/step_parts.py

- The check for finite gradients: the graph of the runtime, and NumPy's sums.
- The gradient of a 3x3 convolution of stride 2 with respect to its image (8 x 64 x 56 x 56, 64
  channels): a ConvTranspose with the padding of the formula, and with padding that CUDA supports.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.training.finite import FiniteCheck

_RUNS = 21
_GRADIENTS = {"12 of 1024x1024": [(1024, 1024)] * 12, "200 of 64x64": [(64, 64)] * 200}
_X, _W, _SIZE = (8, 64, 28, 28), (64, 64, 3, 3), 56


def in_turn(*forms: Callable[[], object]) -> list[float]:
    """Return the median processor time of each form in ms; the forms take turns."""
    times: list[list[float]] = [[] for _ in forms]
    for _ in range(_RUNS):
        for run, held in zip(forms, times, strict=True):
            start = time.process_time()
            run()
            held.append(time.process_time() - start)
    return [statistics.median(held) * 1e3 for held in times]


def finite_lines() -> list[str]:
    lines = []
    for name, shapes in _GRADIENTS.items():
        random = np.random.default_rng(0)
        held = [random.standard_normal(shape, np.float32) for shape in shapes]
        numpy_sums = lambda held=held: all(np.isfinite(array.sum()) for array in held)  # noqa: E731
        check = FiniteCheck([CPU.place(array) for array in held], CPU)
        graph, sums = in_turn(check, numpy_sums)
        lines.append(f"finite, {name}: graph {graph:.2f} ms, NumPy {sums:.2f} ms")
    return lines


def transposed(pads: Sequence[int], extra: int = 0, *, cut: bool = False) -> Callable[[], object]:
    """Return a run of a ConvTranspose, with its result sliced to size at the end if ``cut``."""
    held = {"strides": [2, 2], "pads": pads, "output_padding": [extra, extra]}
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["z" if cut else "y"], **held)]
    bounds = {"first": [0, 0], "end": [_SIZE, _SIZE], "dims": [2, 3]}
    if cut:
        nodes.append(helper.make_node("Slice", ["z", *bounds], ["y"]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in _inputs().items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [_X[0], _W[1], _SIZE, _SIZE])
    literals = [numpy_helper.from_array(np.array(v), n) for n, v in bounds.items() if cut]
    graph = helper.make_graph(nodes, "g", ends, [result], literals)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {name: np.ones(shape, np.float32) for name, shape in _inputs().items()}
    return lambda: session.run(None, feeds)


def _inputs() -> dict[str, Any]:
    return {"x": _X, "w": _W}


def main() -> None:
    print(*finite_lines(), sep="\n")
    for name, uneven, even in (
        ("rows left over", transposed([1, 1, 0, 0]), transposed([1, 1, 1, 1], 1)),
        ("padded after", transposed([0, 0, 1, 1]), transposed([0, 0, 0, 0], cut=True)),
    ):
        before, after = in_turn(uneven, even)
        print(f"{name}: uneven {before:.2f} ms, even {after:.2f} ms")


if __name__ == "__main__":
    main()
