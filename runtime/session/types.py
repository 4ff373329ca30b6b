"""What a graph says of its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["FLOAT32", "Type", "tensor_types"]

FLOAT32 = 1
"""ONNX's number of it."""

Type = tuple[int, tuple[int, ...]]
"""ONNX's number of the element type, and the shape."""


def tensor_types(graph: onnx.GraphProto) -> dict[str, Type]:
    """Return element type and shape of each tensor of known sizes."""
    found = {one.name: (one.data_type, tuple(one.dims)) for one in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        held = value.type.tensor_type
        if held.HasField("shape") and all(dim.HasField("dim_value") for dim in held.shape.dim):
            found[value.name] = (held.elem_type, tuple(dim.dim_value for dim in held.shape.dim))
    return found
