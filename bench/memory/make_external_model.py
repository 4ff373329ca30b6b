"""Write a model with gigabytes of external data, to measure the peak memory of a compilation.

    python bench/memory/make_external_model.py big/ --layers 16 --width 8192
    /usr/bin/time -v tensoropt-opt big/model.onnx --devices 8 -o plan/

The model is a chain of MatMul and Relu. The weights (float32, `width` x `width` per layer) are
streamed. With `--sparse` they are a hole in the file, which takes no disk space and reads as zeros.
The default size is 4 GiB.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tensoropt.runtime.support.flags import Parser, run_command

PAGE_BYTES = 4096
CHUNK_ELEMENTS = 1 << 20


def weight(name: str, width: int, offset: int, location: str) -> onnx.TensorProto:
    """Return the initializer of a `width` x `width` weight at `offset` of the data file."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[width, width])
    made.data_location = TensorProto.EXTERNAL
    length = width * width * 4
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        made.external_data.add(key=key, value=str(value))
    return made


def chain(layers: int, width: int, batch: int, location: str) -> onnx.ModelProto:
    """Return the model: `layers` times MatMul and Relu over `batch` x `width`."""
    step = -(-width * width * 4 // PAGE_BYTES) * PAGE_BYTES
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weights.append(weight(f"w{i}", width, i * step, location))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"h{i}"], name=f"matmul{i}"))
        last = "y" if i == layers - 1 else f"r{i}"
        nodes.append(helper.make_node("Relu", [f"h{i}"], [last], name=f"relu{i}"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, width]) for n in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def write_data(path: Path, layers: int, width: int, sparse: bool) -> None:
    """Write the weights: a hole, or random numbers, a chunk at a time."""
    step = -(-width * width * 4 // PAGE_BYTES) * PAGE_BYTES
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.truncate(layers * step)
        for i in range(0 if sparse else layers):
            file.seek(i * step)
            for start in range(0, width * width, CHUNK_ELEMENTS):
                count = min(CHUNK_ELEMENTS, width * width - start)
                piece = rng.standard_normal(count, dtype=np.float32) * width**-0.5
                file.write(piece.astype(np.float32).tobytes())


def main() -> None:
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of model.onnx and model.data")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--sparse", action="store_true", help="a hole instead of numbers")
    given = parser.parse()
    given.folder.mkdir(parents=True, exist_ok=True)
    write_data(given.folder / "model.data", given.layers, given.width, given.sparse)
    proto = chain(given.layers, given.width, given.batch, "model.data")
    (given.folder / "model.onnx").write_bytes(proto.SerializeToString(deterministic=True))


if __name__ == "__main__":
    sys.exit(run_command(main))
