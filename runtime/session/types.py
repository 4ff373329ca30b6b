"""Types of a graph's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

__all__ = ["FLOAT32", "Type", "attributes", "names_read", "tensor_types"]

FLOAT32 = 1
"""ONNX's number of float32."""

Type = tuple[int, tuple[int, ...]]
"""ONNX's number of the element type, and the shape."""


def tensor_types(graph: onnx.GraphProto) -> dict[str, Type]:
    """Return the element type and shape of each tensor of known size."""
    found = {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            found[value.name] = (kind.elem_type, tuple(dim.dim_value for dim in kind.shape.dim))
    return found


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name."""
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its bodies read."""
    yield from node.input
    for attribute in node.attribute:
        for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
            for inner in body.node:
                yield from names_read(inner)
            yield from (value.name for value in body.output)
