"""A graph that was exported for training, as it is run afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["for_inference"]


def for_inference(model: onnx.ModelProto) -> None:
    """Let the nodes of an ONNX ``model`` that are others in training be as in inference, in place.

    BatchNormalization reads running statistics, Dropout returns its operand. A node whose further
    results are read, or whose mode is an input, stays as it is. Linear in the nodes.
    """
    graph = model.graph
    read = {*_read(graph)}
    stored = {tensor.name for tensor in graph.initializer}
    given = {value.name for value in graph.input} - stored
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "BatchNormalization" and read.isdisjoint(node.output[1:]):
            _normalise(node)
        if node.op_type == "Dropout" and len(node.input) == 3 and node.input[2] not in given:
            del node.input[2:]
    _drop_unread(graph, stored & read)


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph and those inside its nodes read."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _read(attribute.g)
    yield from (value.name for value in graph.output)


def _drop_unread(graph: onnx.GraphProto, names: set[str]) -> None:
    """Remove those of the initializers ``names`` that nothing reads any more."""
    unread = names.difference(_read(graph))
    kept = [tensor for tensor in graph.initializer if tensor.name not in unread]
    if unread:
        del graph.initializer[:]
        graph.initializer.extend(kept)


def _normalise(node: onnx.NodeProto) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != "training_mode"]
    if len(kept) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)
        del node.output[1:]
