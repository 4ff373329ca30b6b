"""Initializers and constants of ONNX graphs, and their sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

__all__ = ["constant_bytes", "constants", "tensor_bytes", "tensor_dtype"]


def constants(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield names and TensorProtos of the initializers and constants of the main graph."""
    for tensor in model.graph.initializer:
        yield tensor.name, tensor
    for node in model.graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t


def tensor_dtype(tensor: onnx.TensorProto) -> np.dtype[np.generic]:
    """Return the element type of a TensorProto."""
    import onnx

    found: np.dtype[np.generic] = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return found


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a TensorProto in memory, in bytes."""
    return int(np.prod(tensor.dims, dtype=np.int64)) * tensor_dtype(tensor).itemsize


def constant_bytes(graph: Path) -> int:
    """Return the bytes of all initializers and constants of an ONNX file, without running it."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    return sum(tensor_bytes(tensor) for _, tensor in constants(model))
