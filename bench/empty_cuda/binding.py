"""Check that onnxruntime-gpu uses bound memory in place, without copies.

    LD_LIBRARY_PATH=FOLDER python bench/empty_cuda/binding.py FOLDER

FOLDER has the libraries of `make.py`. A session is bound to addresses of one block, as training
binds the state of elastic jobs. Prints a line per type: the number of tensors copied in two runs,
and whether the output is at its address. A tensor in host memory is copied before each run.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

_BYTES, _COUNT = 256, 64
_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
_TYPES["bfloat16"] = TensorProto.BFLOAT16


def session(kind: int) -> onnxruntime.InferenceSession:
    """Return a session of y = x x on the device."""
    ends = [helper.make_tensor_value_info(name, kind, [_COUNT]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["y"])], "g", ends[:1], ends[1:])
    opset = helper.make_opsetid("", 17)
    model: Any = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), None, ["CUDAExecutionProvider"])


def main() -> None:
    runtime = ctypes.CDLL(str(Path(sys.argv[1]) / "libcudart.so.13"))
    block = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(2 * _BYTES))
    x = int(block.value or 0)
    for name, kind in _TYPES.items():
        made = session(kind)
        binding = made.io_binding()
        binding.bind_input("x", "cuda", 0, kind, [_COUNT], x)
        binding.bind_output("y", "cuda", 0, kind, [_COUNT], x + _BYTES)
        before = runtime.empty_copies()
        for _ in range(2):
            made.run_with_iobinding(binding)
        copied = runtime.empty_copies() - before
        is_there = binding.get_outputs()[0].data_ptr() == x + _BYTES
        print(f"{name}: {copied} copies, the output is {'' if is_there else 'not '}at its address")
    host = np.zeros(_COUNT, np.float32)
    made = session(TensorProto.FLOAT)
    binding = made.io_binding()
    before = runtime.empty_copies()
    binding.bind_cpu_input("x", host)
    binding.bind_output("y", "cuda", 0)
    made.run_with_iobinding(binding)
    print(f"of the host's memory: {runtime.empty_copies() - before} copies")


if __name__ == "__main__":
    main()
